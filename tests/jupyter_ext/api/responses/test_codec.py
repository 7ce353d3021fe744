"""Tests the events of a turn as the events and the resource of a response; OpenAI's own types read every output."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agent_kernel.core.events import (
    ApprovalRequired,
    CallFinished,
    CallOutput,
    CallReturned,
    CallStarted,
    EventBody,
    EventNumbering,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from jupyter_ext.api.dialects.codec import DONE
from jupyter_ext.api.responses.codec import ResponsesCodec
from jupyter_ext.api.responses.output_items import LOGPROBS, OUTPUTS, SOURCES
from jupyter_ext.api.responses.request import ResponsesBody
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id, stem_of
from tests.jupyter_ext.api.dialects.events import BEGIN, END, OURS, USAGE, any_end, any_event

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ECHO = ResponsesBody(model="m", input="x").echo
FILE = {"id": "file_1", "name": "a.csv", "mime_type": "text/csv", "bytes": 1}


def facts(**fields: Any) -> ResponseFacts:
    given = {"reports": True, **fields}
    return ResponseFacts(response_id("ns", "turn"), "m", "session_1", echo=ECHO, **given)


def stream_events(bodies: Iterable[EventBody], codec: ResponsesCodec | None = None) -> list[Any]:
    """Return the data of every event, in order."""
    codec, stamp = codec or ResponsesCodec(facts()), EventNumbering("turn_1", "session_1")
    frames = [*codec.begin()]
    for body in bodies:
        frames += codec.feed(stamp(body))
    assert frames.pop() == DONE
    return [read(frame.encode()) for frame in frames]


def read(frame: bytes) -> Any:
    name, data = frame.decode().removesuffix("\n\n").split("\n")
    body = json.loads(data.removeprefix("data: "))
    assert name == f"event: {body['type']}"
    return body


def kinds(events: Iterable[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def items(bodies: Iterable[EventBody], **fields: Any) -> list[Any]:
    codec = ResponsesCodec(facts(**fields))
    stream_events([*BEGIN, *bodies, END], codec)
    found: list[Any] = Response.model_validate(codec.whole()).to_dict()["output"]  # type: ignore[assignment]
    return found


def sound(events: list[Any]) -> Response:
    """Check that the events are numbered without gaps and valid for OpenAI's types. Return the response that its client
    accumulates.
    """
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    opened: dict[int, str] = {}
    closed: set[int] = set()
    for event in events:
        if event["type"] not in OURS:
            state.handle_event(EVENT.validate_python(event))
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(opened)
            opened[event["output_index"]] = event["item"]["id"]
        if "item_id" in event:
            assert event["item_id"] == opened[event["output_index"]]
            assert event["output_index"] not in closed
        if event["type"] == "response.output_item.done":
            assert event["item"]["id"] == opened[event["output_index"]]
            closed.add(event["output_index"])
    assert closed == opened.keys()
    final = Response.model_validate(events[-1]["response"])
    assert [item["id"] for item in events[-1]["response"]["output"]] == list(opened.values())
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert deltas == final.output_text == events[-1]["response"]["output_text"]
    return final


# ---------------------------------------------------------------------------------------------------- any events


@given(
    st.lists(any_event(st.uuids().map(str)), max_size=12),
    any_end("committed", "cancelled", "failed", "interrupted"),
    st.booleans(),
    st.booleans(),
    st.frozensets(st.sampled_from([LOGPROBS, OUTPUTS, SOURCES])),
)
def test_any_events_make_a_stream_that_openais_client_reads(
    told: list[EventBody], end: TurnFinished, background: bool, shell: bool, include: frozenset[str]
) -> None:
    unique: list[EventBody] = []
    running: set[str] = set()
    for body in told:  # an id is of one call
        if isinstance(body, CallStarted):
            if body.call in running:
                continue
            running.add(body.call)
        unique.append(body)
    wanted = facts(background=background, shell=shell, include=sorted(include), namespaces={"ns.f": ("ns", "f")})
    codec = ResponsesCodec(wanted)
    final = sound(stream_events([*unique, end], codec))
    assert final.status in ("completed", "failed", "incomplete", "cancelled")
    assert codec.whole() == codec.resource
    again = ResponsesCodec(ResponseFacts.from_json(json.loads(json.dumps(wanted.to_json()))))
    stream_events([*unique, end], again)
    assert [item["id"] for item in again.whole()["output"]] == [item["id"] for item in codec.whole()["output"]]


# ---------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("end", "kind", "status"),
    [
        (END, "completed", "completed"),
        (TurnFinished("committed", "", 0, USAGE, finish="calls"), "completed", "completed"),
        (TurnFinished("committed", "", 0, USAGE, finish="length"), "incomplete", "incomplete"),
        (TurnFinished("cancelled", "stopped", 0, USAGE), "incomplete", "cancelled"),
        (TurnFinished("interrupted", "the server died", 0, {}), "failed", "failed"),
        (TurnFinished("failed", "x", 0, {}, {"code": "engine_error", "message": "it fell"}), "failed", "failed"),
    ],
)
def test_the_end_of_the_turn_is_the_end_of_the_response(end: TurnFinished, kind: str, status: str) -> None:
    events = stream_events([*BEGIN, TextDelta("a"), end])
    assert kinds(events)[-1] == kind
    final = sound(events)
    assert final.status == status
    assert (final.error is None) == (status != "failed")
    assert (final.incomplete_details is not None) == (status == "incomplete")


def test_one_in_the_background_is_queued_until_its_turn_begins() -> None:
    codec = ResponsesCodec(facts(background=True))
    assert kinds(stream_events([*BEGIN, END], codec))[:3] == ["created", "queued", "in_progress"]


def test_an_error_is_said_with_openais_code_and_ours() -> None:
    fault = {"code": "context_overflow", "message": "Too long.", "hint": "Say less.", "details": {}}
    final = sound(stream_events([*BEGIN, TurnFinished("failed", "Too long.", 0, {}, fault)]))
    assert final.error is not None
    assert (final.error.code, final.error.message, final.error.type) == (
        "invalid_prompt",
        "Too long. Say less.",
        "context_overflow",
    )


def test_reasoning_is_the_summary_for_a_client_that_asked_for_one() -> None:
    """Clients of other vendors show summaries only, and showed no reasoning."""
    echo = ResponsesBody.model_validate({"input": "x", "reasoning": {"summary": "auto"}}).echo
    codec = ResponsesCodec(ResponseFacts(response_id("ns", "turn"), "m", "session_1", echo=echo))
    events = stream_events((*BEGIN, ReasoningDelta("I "), ReasoningDelta("think."), TextDelta("Hi"), END), codec)
    summary = [event for event in events if "summary" in event["type"]]
    for event in summary:
        EVENT.validate_python(event)
    assert [event["type"].removeprefix("response.reasoning_summary_") for event in summary] == [
        "part.added",
        "text.delta",
        "text.delta",
        "text.done",
        "part.done",
    ]
    item = Response.model_validate(codec.resource).output[0].to_dict()
    assert (item["summary"], item["content"]) == ([{"type": "summary_text", "text": "I think."}], [])


def test_while_it_runs_the_resource_has_the_items_that_are_whole() -> None:
    codec, stamp = ResponsesCodec(facts()), EventNumbering("turn_1", "session_1")
    for body in (*BEGIN, ReasoningDelta("hm"), TextDelta("Hel")):
        [*codec.feed(stamp(body))]
    assert codec.resource["status"] == "in_progress"
    assert [item["type"] for item in codec.resource["output"]] == ["reasoning"]


def test_what_it_cost_has_the_tokens_that_were_not_computed_again() -> None:
    final = sound(stream_events([*BEGIN, END]))
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens, final.usage.total_tokens) == (10, 4, 14)
    assert final.usage.input_tokens_details.cached_tokens == 6


# ---------------------------------------------------------------------------------------------------- items


def test_ids_of_items_name_their_response() -> None:
    codec = ResponsesCodec(facts())
    stream_events([*BEGIN, ReasoningDelta("hm"), TextDelta("a"), END], codec)
    assert {stem_of(item["id"]) for item in codec.whole()["output"]} == {codec.facts.id}
    assert {stem_of(id) for id in ("", "msg_1", "resp_x", "msg_" + "g" * 48 + "_1")} == {""}


def test_text_before_calls_that_run_here_is_no_answer_yet() -> None:
    run = CallStarted("c", "python", {"code": "1"}, "sandbox")
    done = CallFinished("c", "python", "success", "1", 0.1)
    said, ran, answer = items([TextDelta("I look."), run, done, TextDelta("Yes.")])
    assert (said["phase"], ran["type"], answer.get("phase")) == ("commentary", "code_interpreter_call", None)


@pytest.mark.parametrize(
    ("details", "text", "expected"),
    [
        ({"stdout": "a", "stderr": "b", "exit_code": 3}, "", {"stdout": "a", "stderr": "b", "exit": 3}),
        ({"stdout": "a", "stderr": "", "exit_code": None, "timed_out": True}, "", {"stdout": "a", "stderr": ""}),
        ({}, "This call did not run: denied.", {"stdout": "", "stderr": "This call did not run: denied.", "exit": 126}),
    ],
    ids=["ended", "timed out", "denied"],
)
def test_a_shell_call_says_how_it_ended(details: Any, text: str, expected: Any) -> None:
    run = CallStarted("c", "shell", {"commands": ["x"], "timeout_ms": 5}, "sandbox")
    called, printed = items([run, CallFinished("c", "shell", "error", text, 0.1, details=details)], shell=True)
    outcome = {"type": "exit", "exit_code": expected.pop("exit")} if "exit" in expected else {"type": "timeout"}
    assert called["action"] == {"commands": ["x"], "max_output_length": None, "timeout_ms": 5}
    assert printed["output"] == [{**expected, "outcome": outcome}]
    assert called["call_id"] == printed["call_id"] == "c"


def test_what_a_shell_prints_is_told_while_it_runs() -> None:
    codec = ResponsesCodec(facts(shell=True))
    run = CallStarted("c", "shell", {"commands": ["x"]}, "sandbox")
    events = stream_events([*BEGIN, run, CallOutput("c", "one"), CallOutput("c", "two", "stderr"), END], codec)
    deltas = [event["delta"] for event in events if event["type"].endswith("output_content.delta")]
    assert deltas == [{"stdout": "one"}, {"stderr": "two"}]
    assert codec.whole()["output"][-1]["status"] == "incomplete", "the turn ended first"


def test_pictures_and_sources_come_where_they_are_asked_for() -> None:
    told: list[EventBody] = [
        CallStarted("c1", "python", {"code": "plot()"}, "sandbox"),
        CallFinished("c1", "python", "success", "done", 0.1, ({"mime": "image/png", "data": "QQ=="},)),
        CallStarted("c2", "web_search", {"query": "q"}, "server"),
        CallFinished("c2", "web_search", "success", '{"output": [{"url": "https://a.org/x"}]}', 0.1),
        CallStarted("c3", "fetch_page", {"url": "https://b.org"}, "server"),
        CallFinished("c3", "fetch_page", "error", "no", 0.1),
    ]
    run, search, page = items(told)
    assert (run["outputs"], "sources" in search["action"]) == (None, False)
    assert (page["action"], page["status"]) == ({"type": "open_page", "url": "https://b.org"}, "failed")
    run, search, _ = items(told, include=[OUTPUTS, SOURCES])
    assert run["outputs"] == [
        {"type": "logs", "logs": "done"},
        {"type": "image", "url": "data:image/png;base64,QQ=="},
    ]
    assert search["action"]["sources"] == [{"type": "url", "url": "https://a.org/x"}]


def test_a_file_is_cited_where_it_is_named() -> None:
    (said,) = items([FileProduced("c", FILE), TextDelta("See a.csv.")])
    (cited,) = said["content"][0]["annotations"]
    assert (cited["file_id"], cited["container_id"], cited["start_index"], cited["end_index"]) == (
        "file_1",
        "session_1",
        4,
        9,
    )
    (silent,) = items([FileProduced("c", FILE)])
    assert [one["file_id"] for one in silent["content"][0]["annotations"]] == ["file_1"]
    (failed,) = items([FileProduced("c", {**FILE, "code": "not_produced"}), TextDelta("a.csv")])
    assert failed["content"][0]["annotations"] == []


def test_a_client_that_does_not_know_our_events_gets_only_the_question() -> None:
    asked = ApprovalRequired("appr_1", "c", "python", "python.sandbox", "sandbox", "1", {"code": "1"}, label="Python")
    run, file = CallStarted("c", "python", {"code": "1"}, "sandbox"), FileProduced("c", FILE)
    for reports in (True, False):
        events = stream_events([*BEGIN, asked, run, file, END], ResponsesCodec(facts(reports=reports)))
        ours = [event["type"] for event in events if event["type"] in OURS]
        assert ours == ([OURS[1], OURS[0], OURS[2]] if reports else [OURS[1]])
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_person_who_is_asked_is_told_how_to_answer() -> None:
    asked = ApprovalRequired("appr_1", "c", "python", "python.sandbox", "sandbox", "1", {"code": "1"}, label="Python")
    event = next(one for one in stream_events([*BEGIN, asked, END]) if one["type"] == "agentic_tool_approval_required")
    assert (event["approval_id"], event["tool"]["kind"], event["arguments"]) == (
        "appr_1",
        "code_execution",
        {"code": "1"},
    )


def test_arguments_that_were_no_json_come_as_they_were_written() -> None:
    (call,) = items([CallReturned("c", "f", {"_raw": "{bad"})])
    assert call["arguments"] == "{bad"


@pytest.mark.parametrize("name", ["python", "web_search", "shell"])
def test_a_call_that_was_denied_is_never_announced_as_completed(name: str) -> None:
    codec = ResponsesCodec(facts(shell=True))
    run = CallStarted("c", name, {"code": "1", "query": "q", "commands": ["x"]}, "sandbox")
    denied = CallFinished("c", name, "denied", "This call did not run: no.", 0.1)
    events = stream_events([*BEGIN, run, denied, TextDelta("No."), END], codec)
    assert not [event["type"] for event in events if event["type"].endswith("_call.completed")]
    ended = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["status"] for item in ended if item["type"] not in ("message", "shell_call")] == [
        "incomplete" if name == "shell" else "failed"
    ]
