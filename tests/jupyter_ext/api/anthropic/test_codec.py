"""Tests the events of a turn as Anthropic's messages; Anthropic's own types and accumulators read every output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import httpx
import pytest
from anthropic import types
from anthropic._models import construct_type
from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._beta_messages import accumulate_event as accumulate_beta
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import beta
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agent_kernel.core.events import (
    ApprovalRequired,
    CallFinished,
    CallReturned,
    CallStarted,
    ContextBuilt,
    EventBody,
    EventNumbering,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from jupyter_ext.api.anthropic.codec import PING, Container, MessagesCodec
from jupyter_ext.api.dialects import anthropic_errors
from tests.jupyter_ext.api.dialects.events import (
    BEGIN,
    END,
    FILE,
    FOUND,
    OURS,
    PYTHON,
    PYTHON_DONE,
    USAGE,
    any_end,
    any_event,
)

EVENT: TypeAdapter[types.RawMessageStreamEvent] = TypeAdapter(types.RawMessageStreamEvent)
BETA_EVENT: TypeAdapter[beta.BetaRawMessageStreamEvent] = TypeAdapter(beta.BetaRawMessageStreamEvent)


def codec(**options: Any) -> MessagesCodec:
    def refused(end: TurnFinished) -> Mapping[str, Any]:
        return anthropic_errors.body(503, end.error or {}, "req_1")

    return MessagesCodec("agent/default", options.pop("session", ""), refused=refused, **options)


def feed(bodies: Iterable[EventBody], **options: Any) -> tuple[MessagesCodec, list[bytes]]:
    made, stamp = codec(**options), EventNumbering("turn_1", "s1", clock=lambda: 1_800_000_000.0)
    frames = [*made.begin()]
    for body in bodies:
        frames += made.feed(stamp(body))
    return made, [frame.encode() for frame in frames]


def read(frames: Sequence[bytes]) -> list[tuple[str | None, Any]]:
    """Return (name, data) of the events, read by Anthropic's decoder."""
    return [(sse.event, sse.json()) for sse in SSEDecoder().iter_bytes(iter(frames))]


def named_events(frames: Sequence[bytes]) -> list[Any]:
    """Return the data of the events that a client of Anthropic yields: all except pings and unnamed events."""
    return [data for name, data in read(frames) if name not in (None, "ping")]


def ours(frames: Sequence[bytes]) -> list[Any]:
    return [data for name, data in read(frames) if name is None]


def accumulate(frames: Sequence[bytes]) -> dict[str, Any]:
    """Return the message at the end of ``messages.stream()``."""
    message: Any = None
    buffers: dict[int, bytes] = {}
    for data in named_events(frames):
        EVENT.validate_python(data)
        BETA_EVENT.validate_python(data)
        event = construct_type(type_=cast("Any", types.RawMessageStreamEvent), value=data)
        message = accumulate_event(event=cast("Any", event), current_snapshot=message, json_bufs=buffers)
    return cast("dict[str, Any]", message.to_dict(mode="json"))


def accumulated_beta(frames: Sequence[bytes]) -> dict[str, Any]:
    message: Any = None
    buffers: dict[int, bytes] = {}
    for data in named_events(frames):
        event = construct_type(type_=cast("Any", beta.BetaRawMessageStreamEvent), value=data)
        message = accumulate_beta(
            event=cast("Any", event),
            current_snapshot=message,
            json_bufs=buffers,
            request_headers=cast("Any", httpx.Headers()),
        )
    return cast("dict[str, Any]", message.to_dict(mode="json"))


def whole(made: MessagesCodec) -> dict[str, Any]:
    """Return the answer without a stream, after Anthropic's types have validated it."""
    body: dict[str, Any] = json.loads(json.dumps(made.whole()))
    types.Message.model_validate(body)
    beta.BetaMessage.model_validate(body)
    return body


def same(bodies: Iterable[EventBody], **options: Any) -> dict[str, Any]:
    """Return the message, after a check that the accumulated stream is equal to it."""
    made, frames = feed(bodies, **options)
    message = whole(made)
    plain = {key: value for key, value in message.items() if key not in ("agentic_tool_calls", "files", "notices")}
    assert accumulate(frames) == plain
    assert accumulated_beta(frames) == plain
    last = next(data for data in named_events(frames) if data["type"] == "message_delta")
    for key in ("agentic_tool_calls", "files", "notices", "session_id"):
        assert last.get(key) == message.get(key)
    return message


def kinds(message: Mapping[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def test_a_stream_begins_and_ends_as_anthropic_says() -> None:
    _, frames = feed([*BEGIN, TextDelta("Hel"), TextDelta("lo."), END], session="s1")
    assert [name for name, _ in read(frames)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(name == data["type"] for name, data in read(frames))
    start, end = named_events(frames)[0], named_events(frames)[-2]
    assert (start["message"]["content"], start["message"]["stop_reason"]) == ([], None)
    assert (end["delta"]["stop_reason"], end["session_id"]) == ("end_turn", "s1")


def test_the_stream_and_the_whole_say_the_same() -> None:
    message = same([*BEGIN, ReasoningDelta("Hm."), TextDelta("Hel"), TextDelta("lo."), END], session="s1")
    assert message["content"][1] == {"type": "text", "text": "Hello."}
    assert message["session_id"] == "s1"


def test_tokens_that_were_cached_are_counted_apart() -> None:
    usage = same([*BEGIN, TextDelta("a"), END])["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (4, 6, 4)


@pytest.mark.parametrize(
    ("state", "finish", "reason"),
    [
        ("committed", "stop", "end_turn"),
        ("committed", "length", "max_tokens"),
        ("committed", "calls", "tool_use"),
        ("cancelled", "", "pause_turn"),
        ("interrupted", "", "pause_turn"),
    ],
)
def test_why_the_answer_ended_is_told_in_anthropics_words(state: Any, finish: str, reason: str) -> None:
    assert same([*BEGIN, TurnFinished(state, "", 0, USAGE, finish=finish)])["stop_reason"] == reason


def test_a_stop_sequence_is_named() -> None:
    end = TurnFinished("committed", "", 0, USAGE, finish="stop", stopped="END")
    message = same([*BEGIN, TextDelta("a"), end])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")


def test_calls_of_the_clients_tools_are_blocks_with_their_ids() -> None:
    end = TurnFinished("committed", "", 0, USAGE, finish="calls")
    calls: list[EventBody] = [CallReturned("c1", "weather", {"city": "Zürich\u2028"}), CallReturned("c2", "time", {})]
    message = same([*BEGIN, TextDelta("Let me see."), *calls, end])
    assert message["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Zürich\u2028"}},
        {"type": "tool_use", "id": "c2", "name": "time", "input": {}},
    ]


@pytest.mark.parametrize("thinking", ["shown", "omitted", "hidden"])
def test_thinking_is_shown_omitted_or_hidden_and_its_signature_is_that_of_its_text(thinking: Any) -> None:
    bodies: list[EventBody] = [*BEGIN, ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("a"), END]
    message = same(bodies, thinking=thinking)
    if thinking == "hidden":
        assert kinds(message) == ["text"]
        return
    block = message["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "Hm." if thinking == "shown" else "")
    assert block["signature"] == same(bodies, thinking="shown")["content"][0]["signature"]
    other = same([*BEGIN, ReasoningDelta("Other."), END])["content"][0]["signature"]
    assert other != block["signature"]


def test_python_is_code_execution_in_a_container_that_expires() -> None:
    container = Container("s1", 600.0)
    message = same([*BEGIN, PYTHON, FILE, PYTHON_DONE, ContextBuilt(3, 0), TextDelta("1."), END], container=container)
    use, result, text = message["content"]
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "code_execution", {"code": "print(1)"})
    assert use["id"].startswith("srvtoolu_")
    assert result == {
        "type": "code_execution_tool_result",
        "tool_use_id": use["id"],
        "content": {
            "type": "code_execution_result",
            "stdout": "1",
            "stderr": "",
            "return_code": 0,
            "content": [{"type": "code_execution_output", "file_id": "file_1"}],
        },
    }
    assert text["text"] == "1."
    assert message["container"] == {"id": "s1", "expires_at": "2027-01-15T08:10:00Z", "skills": None}
    assert [record["name"] for record in message["agentic_tool_calls"]] == ["python"]
    assert message["files"] == [FILE.file]


def test_a_turn_without_code_has_no_container() -> None:
    assert "container" not in same([*BEGIN, TextDelta("a"), END], container=Container("s1", 600.0))


@pytest.mark.parametrize("status", ["error", "timeout", "denied", "interrupted"])
def test_code_that_did_not_end_well_says_why(status: Any) -> None:
    message = same([*BEGIN, PYTHON, CallFinished("c1", "python", status, "boom", 0.1), END])
    content = message["content"][1]["content"]
    assert (content["stderr"], content["stdout"], content["return_code"]) == ("boom", "", 1)


def test_shell_has_its_streams_and_its_exit_code() -> None:
    details = {"stdout": "a\n", "stderr": "no\n", "exit_code": 2, "status": "error"}
    calls: list[EventBody] = [
        CallStarted("c1", "shell", {"commands": ["echo a", "false"]}, "sandbox"),
        CallFinished("c1", "shell", "error", "a\n[stderr]\nno", 0.1, details=details),
    ]
    use, result = same([*BEGIN, *calls, END])["content"]
    assert (use["name"], use["input"]) == ("bash_code_execution", {"command": "echo a\nfalse"})
    assert result["type"] == "bash_code_execution_tool_result"
    told = {key: result["content"][key] for key in ("stdout", "stderr", "return_code")}
    assert told == {"stdout": "a\n", "stderr": "no\n", "return_code": 2}


def test_a_search_has_its_results_and_is_counted() -> None:
    text = json.dumps({"note": "n", "sources": ["a.org"], "output": FOUND})
    calls: list[EventBody] = [
        CallStarted("c1", "web_search", {"query": "a"}, "server"),
        CallFinished("c1", "web_search", "success", text, 0.1, details={"results_count": 1, "sources": ["a.org"]}),
    ]
    message = same([*BEGIN, *calls, END])
    found = message["content"][1]
    assert found["type"] == "web_search_tool_result"
    assert [(one["url"], one["title"]) for one in found["content"]] == [("https://a.org/", "A")]
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}


def test_a_page_is_a_document() -> None:
    text = json.dumps({"note": "n", "sources": ["a.org"], "output": FOUND[0]})
    calls: list[EventBody] = [
        CallStarted("c1", "fetch_page", {"url": "https://a.org/"}, "server"),
        CallFinished("c1", "fetch_page", "success", text, 0.1),
    ]
    content = same([*BEGIN, *calls, END])["content"][1]["content"]
    assert (content["url"], content["content"]["source"]["data"]) == ("https://a.org/", "words")


@pytest.mark.parametrize(("name", "code"), [("web_search", "unavailable"), ("fetch_page", "url_not_accessible")])
@pytest.mark.parametrize(("status", "text"), [("error", "no route"), ("success", "cut in the mid [...")])
def test_the_web_that_failed_is_an_error_of_its_own(name: str, code: str, status: Any, text: str) -> None:
    calls: list[EventBody] = [CallStarted("c1", name, {}, "server"), CallFinished("c1", name, status, text, 0.1)]
    assert same([*BEGIN, *calls, END])["content"][1]["content"]["error_code"] == code


def test_calls_at_the_same_time_keep_their_results() -> None:
    calls: list[EventBody] = [CallStarted(f"c{n}", "fetch_page", {"url": f"u{n}"}, "server") for n in (1, 2)]
    ends: list[EventBody] = [CallFinished(f"c{n}", "fetch_page", "error", f"no {n}", 0.1) for n in (2, 1)]
    content = same([*BEGIN, *calls, *ends, END])["content"]
    assert [block["type"] for block in content] == ["server_tool_use"] * 2 + ["web_fetch_tool_result"] * 2
    assert [block["tool_use_id"] for block in content[2:]] == [content[1]["id"], content[0]["id"]]


def test_ids_that_a_model_uses_again_are_told_apart() -> None:
    round_: list[EventBody] = [PYTHON, PYTHON_DONE, ContextBuilt(3, 0)]
    content = same([*BEGIN, *round_, *round_, END])["content"]
    assert len({block["id"] for block in content if block["type"] == "server_tool_use"}) == 2


def test_other_tools_of_the_server_are_told_in_records_and_what_is_said_around_them_is_two_texts() -> None:
    calls: list[EventBody] = [
        CallStarted("c1", "read_file", {"file": "f"}, "server"),
        CallFinished("c1", "read_file", "success", "words", 0.1),
        ContextBuilt(3, 0),
    ]
    message = same([*BEGIN, TextDelta("First."), *calls, TextDelta("Then."), END])
    assert [block["text"] for block in message["content"]] == ["First.", "Then."]
    assert [record["name"] for record in message["agentic_tool_calls"]] == ["read_file"]


def test_what_is_ours_has_no_name_so_that_clients_pass_over_it() -> None:
    asked = ApprovalRequired("a1", "c1", "python", "python.sandbox", "sandbox", "print(1)")
    _, frames = feed([*BEGIN, PYTHON, asked, FILE, PYTHON_DONE, END])
    assert [data["type"] for data in ours(frames)] == [OURS[0], OURS[1], OURS[2], OURS[0]]
    assert {data["type"] for data in named_events(frames)}.isdisjoint(OURS)


def test_a_failed_turn_ends_with_an_error_and_nothing_else() -> None:
    fault = {"code": "engine_error", "message": "It broke.", "hint": "Ask again.", "details": {}}
    _, frames = feed([*BEGIN, TextDelta("a"), TurnFinished("failed", "", 0, USAGE, fault)])
    name, data = read(frames)[-1]
    assert (name, data["type"], data["request_id"]) == ("error", "error", "req_1")
    assert (data["error"]["type"], data["error"]["message"]) == ("overloaded_error", "It broke. Ask again.")
    assert "message_delta" not in [data["type"] for data in named_events(frames)]
    assert named_events(frames)[-2]["type"] == "content_block_stop"


def test_a_quiet_stream_pings() -> None:
    assert read([PING]) == [("ping", {"type": "ping"})]
    assert named_events([PING]) == []


# ---------------------------------------------------------------------------------------------------- any events


@given(
    st.lists(any_event(), max_size=20),
    any_end("committed", "cancelled", "interrupted"),
    st.sampled_from(["shown", "omitted", "hidden"]),
)
def test_whatever_happens_anthropics_types_and_accumulators_take_it(
    bodies: list[EventBody], end: TurnFinished, thinking: Any
) -> None:
    message = same([*BEGIN, *bodies, end], thinking=thinking, container=Container("s1", 60.0), session="s1")
    said = "".join(body.text for body in bodies if isinstance(body, TextDelta))
    assert "".join(block["text"] for block in message["content"] if block["type"] == "text") == said
    thought = "".join(body.text for body in bodies if isinstance(body, ReasoningDelta))
    shown = "".join(block["thinking"] for block in message["content"] if block["type"] == "thinking")
    assert shown == (thought if thinking == "shown" else "")


@given(st.lists(any_event(), max_size=20))
def test_whatever_happened_before_a_failure_the_blocks_are_closed_and_the_error_is_last(
    bodies: list[EventBody],
) -> None:
    fault = {"code": "x", "message": "y", "hint": "", "details": {}}
    _, frames = feed([*BEGIN, *bodies, TurnFinished("failed", "", 0, {}, fault)])
    events = [data["type"] for data in named_events(frames)]
    assert events[-1] == "error"
    assert events.count("content_block_start") == events.count("content_block_stop")
    assert events.count("error") == 1
