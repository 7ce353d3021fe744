"""Tests the events of a turn as chunks and completions; OpenAI's own types read every output."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import chat

from agent_kernel.core.errors import TurnStopped
from agent_kernel.core.events import (
    AnswerLogprobs,
    ApprovalRequired,
    CallOutput,
    CallReturned,
    ContextBuilt,
    EventBody,
    EventNumbering,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.session import creation_time, new_id
from jupyter_ext.api.chat_completions.codec import ChatCodec
from tests.jupyter_ext.api.dialects.events import BEGIN, END, FILE, OURS, PYTHON, PYTHON_DONE, USAGE, any_end, any_event
from tests.narrowing import not_none


def stream_frames(bodies: Iterable[EventBody], **options: Any) -> list[tuple[str, Any]]:
    """Return (name, data) of every frame, in order; ``[DONE]`` is returned as text."""
    codec, stamp = (
        ChatCodec("agent/default", options.pop("session", ""), **options),
        EventNumbering("turn_1", "session_1"),
    )
    frames = [*codec.begin()]
    for body in bodies:
        frames += codec.feed(stamp(body))
    return [read(frame.encode()) for frame in frames]


def read(frame: bytes) -> tuple[str, Any]:
    lines = frame.decode().removesuffix("\n\n").split("\n")
    name = lines[0].removeprefix("event: ") if lines[0].startswith("event: ") else ""
    assert len(lines) == 1 + bool(name)
    data = lines[-1].removeprefix("data: ")
    return name, data if data == "[DONE]" else json.loads(data)


def chunks(frames: Iterable[tuple[str, Any]]) -> list[chat.ChatCompletionChunk]:
    """Return the chunks as OpenAI's client reads them: it ignores the names of events."""
    found = [data for _, data in frames if data != "[DONE]" and "error" not in data]
    return [chat.ChatCompletionChunk.model_validate(data) for data in found]


def text(frames: Iterable[tuple[str, Any]]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks(frames) for choice in chunk.choices)


def whole(*bodies: EventBody, **options: Any) -> chat.ChatCompletion:
    codec, stamp = (
        ChatCodec("agent/default", options.pop("session", ""), **options),
        EventNumbering("turn_1", "session_1"),
    )
    for body in bodies:
        list(codec.feed(stamp(body)))
    return chat.ChatCompletion.model_validate(json.loads(json.dumps(codec.whole())))


def test_a_stream_begins_with_the_role_and_ends_with_a_reason_usage_and_done() -> None:
    frames = stream_frames([*BEGIN, TextDelta("Hel"), TextDelta("lo."), END], session="s1")
    assert [name for name, _ in frames] == [""] * 5
    assert frames[0][1]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None, "logprobs": None}
    ]
    assert text(frames) == "Hello."
    assert frames[-1] == ("", "[DONE]")
    last = frames[-2][1]
    assert (last["choices"][0]["finish_reason"], last["session_id"]) == ("stop", "s1")
    assert last["usage"]["total_tokens"] == 14
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks(frames)}) == 1


def test_usage_that_was_asked_for_is_a_chunk_of_its_own_and_nowhere_else() -> None:
    frames = stream_frames([*BEGIN, TextDelta("a"), END], include_usage=True, session="s1")
    told = [chunk for chunk in chunks(frames) if chunk.usage]
    assert [(chunk.choices, chunk.usage and chunk.usage.total_tokens) for chunk in told] == [([], 14)]
    assert frames[-2][1]["session_id"] == "s1"


def test_usage_that_was_declined_is_not_told() -> None:
    assert not [chunk for chunk in chunks(stream_frames([*BEGIN, END], include_usage=False)) if chunk.usage]


def test_usage_has_the_reused_tokens_and_speeds() -> None:
    usage = not_none(whole(*BEGIN, TextDelta("a"), END).usage)
    assert (usage.prompt_tokens, usage.completion_tokens) == (10, 4)
    assert not_none(usage.prompt_tokens_details).cached_tokens == 6
    assert usage.model_extra == {
        "avg_tok_per_sec": 7.0,
        "avg_prompt_tok_per_sec": 10.0,
        "avg_compl_tok_per_sec": 4.0,
        "total_time_sec": 2.0,
        "total_prompt_time_sec": 1.0,
        "total_completion_time_sec": 1.0,
    }


@pytest.mark.parametrize(("finish", "reason"), [("stop", "stop"), ("length", "length"), ("calls", "tool_calls")])
def test_why_the_answer_ended_is_told_in_openais_words(finish: str, reason: str) -> None:
    end = TurnFinished("committed", "", 0, USAGE, finish=finish)
    assert whole(*BEGIN, end).choices[0].finish_reason == reason
    assert stream_frames([*BEGIN, end])[-2][1]["choices"][0]["finish_reason"] == reason


def test_reasoning_is_a_delta_of_its_own() -> None:
    frames = stream_frames([*BEGIN, ReasoningDelta("Hm."), TextDelta("a"), END])
    assert [data["choices"][0]["delta"] for _, data in frames[1:3]] == [{"reasoning_content": "Hm."}, {"content": "a"}]
    message = whole(*BEGIN, ReasoningDelta("Hm."), TextDelta("a"), END).choices[0].message
    assert message.model_extra == {"reasoning_content": "Hm."}


def test_calls_of_the_clients_functions_are_told_with_their_places() -> None:
    end = TurnFinished("committed", "", 0, USAGE, finish="calls")
    calls: list[EventBody] = [
        CallReturned("c1", "weather", {"city": "Ulm"}),
        CallReturned("c2", "time", {"_raw": "not json"}),
    ]
    frames = stream_frames([*BEGIN, *calls, end])
    state = ChatCompletionStreamState()
    for chunk in chunks(frames):
        list(state.handle_chunk(chunk))
    for message in (state.get_final_completion().choices[0].message, whole(*BEGIN, *calls, end).choices[0].message):
        told = [call for call in message.tool_calls or () if call.type == "function"]
        assert [(call.id, call.function.name, call.function.arguments) for call in told] == [
            ("c1", "weather", '{"city": "Ulm"}'),
            ("c2", "time", "not json"),
        ]
        assert not message.content


def test_tools_of_the_server_are_told_by_named_events_that_are_chunks_without_words() -> None:
    output = CallOutput("c1", "1\n")
    frames = stream_frames(
        [*BEGIN, TextDelta("Let me see."), PYTHON, output, FILE, PYTHON_DONE, ContextBuilt(3, 0), END]
    )
    assert [name for name, _ in frames if name] == [OURS[0], OURS[2], OURS[0]]
    began, file, done = [data for name, data in frames if name]
    assert (began["type"], began["round"], began["tool_name"], began["phase"]) == (OURS[0], 0, "python", "calling")
    assert began["data"] == {"tool_type": "code_execution", "code": "print(1)"}
    assert done["data"] == {"tool_type": "code_execution", "stdout": "1\n", "execution_time_ms": 200}
    assert {key: file[key] for key in FILE.file} == FILE.file
    for data in (began, file, done):
        assert data["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert text(frames) == "Let me see."


def test_texts_of_two_rounds_do_not_run_together() -> None:
    bodies: list[EventBody] = [
        *BEGIN,
        TextDelta("Let me see."),
        PYTHON,
        PYTHON_DONE,
        ContextBuilt(3, 0),
        TextDelta("Tw"),
        TextDelta("o."),
    ]
    assert text(stream_frames([*bodies, END])) == "Let me see.\n\nTwo."


def test_a_completion_is_the_answer_and_what_the_tools_did() -> None:
    bodies: list[EventBody] = [
        *BEGIN,
        TextDelta("Let me see."),
        PYTHON,
        CallOutput("c1", "1\n"),
        FILE,
        PYTHON_DONE,
        ContextBuilt(3, 0),
    ]
    told = whole(*bodies, TextDelta("One."), END, session="s1")
    assert told.choices[0].message.content == "One."
    assert told.model_extra == {
        "agentic_tool_calls": [
            {
                "round": 0,
                "name": "python",
                "arguments": '{"code": "print(1)"}',
                "result_content": "stdout: 1\n",
                "call_id": "c1",
                "file_ids": ["file_1"],
            }
        ],
        "files": [dict(FILE.file)],
        "session_id": "s1",
    }


def test_a_completion_without_tools_has_no_words_about_them() -> None:
    assert whole(*BEGIN, TextDelta("a"), END).model_extra == {}


def test_an_answer_that_came_before_the_last_call_is_not_lost() -> None:
    bodies: list[EventBody] = [*BEGIN, TextDelta("It is one."), PYTHON, PYTHON_DONE, ContextBuilt(3, 0), END]
    assert whole(*bodies).choices[0].message.content == "It is one."


def test_a_completion_has_at_most_64_files() -> None:
    files = [FileProduced("c1", {"id": f"file_{n}"}) for n in range(70)]
    extra = not_none(whole(*BEGIN, *files, END).model_extra)
    assert len(extra["files"]) == 64


def test_log_probabilities_stand_in_a_chunk_behind_their_text() -> None:
    bodies: list[EventBody] = [
        *BEGIN,
        TextDelta("aé"),
        AnswerLogprobs(
            ({"text": "a", "logprob": -0.5, "top": [{"text": "b", "logprob": -0.25}]}, {"text": "é", "logprob": -1.0})
        ),
    ]
    frames = stream_frames([*bodies, END])
    told = [chunk.choices[0].logprobs for chunk in chunks(frames) if chunk.choices[0].logprobs]
    assert [[(t.token, t.logprob, t.bytes) for t in one.content or ()] for one in told] == [
        [("a", -0.5, [97]), ("é", -1.0, [195, 169])]
    ]
    logprobs = not_none(whole(*bodies, END).choices[0].logprobs)
    # A token that was sampled is not its own likeliest alternative: only what the engine told stands there.
    assert [[other.token for other in t.top_logprobs] for t in logprobs.content or ()] == [["b"], []]


@pytest.mark.parametrize("state", ["failed", "cancelled", "interrupted"])
def test_a_turn_without_a_whole_answer_ends_with_an_error_and_done(state: Any) -> None:
    error = {"code": "engine_crashed", "message": "It ended.", "hint": "Ask again.", "details": {}}
    fault = error if state == "failed" else None
    frames = stream_frames([*BEGIN, TextDelta("a"), TurnFinished(state, "why", 0, USAGE, fault)])
    assert frames[-1] == ("", "[DONE]")
    told = frames[-2][1]
    assert list(told) == ["error"]
    assert told["error"]["type"] == "server_error"
    assert told["error"]["code"] == ("engine_crashed" if fault else "turn_stopped")
    assert ("It ended. Ask again." if fault else "why") in told["error"]["message"]
    assert not [chunk for chunk in chunks(frames) for choice in chunk.choices if choice.finish_reason]


def test_a_completion_that_was_stopped_is_none() -> None:
    with pytest.raises(TurnStopped, match="by the person"):
        whole(*BEGIN, TextDelta("a"), TurnFinished("cancelled", "by the person", 0, USAGE))


def test_a_question_is_told_with_the_id_that_answers_it() -> None:
    asked = ApprovalRequired(
        "appr_1", "c1", "shell", "shell", "sandbox", "ls", {"commands": ["ls"]}, label="shell", shown="f00"
    )
    (told,) = [data for name, data in stream_frames([*BEGIN, asked, END]) if name]
    assert {key: told[key] for key in ("type", "approval_id", "session_id", "round", "tool", "arguments")} == {
        "type": OURS[1],
        "approval_id": "appr_1",
        "session_id": "session_1",
        "round": 0,
        "tool": {"source": "built_in", "kind": "shell", "label": "Shell command", "name": "shell"},
        "arguments": {"commands": ["ls"]},
    }


@given(
    st.lists(any_event(), max_size=12),
    any_end("committed", "cancelled", "failed", "interrupted"),
    st.sampled_from([None, True, False]),
)
def test_whatever_happens_a_stream_is_openais_and_has_its_end(
    bodies: list[EventBody], end: TurnFinished, include_usage: bool | None
) -> None:
    frames = stream_frames([TurnStarted("m", True, "sandbox"), *bodies, end], include_usage=include_usage)
    assert [data for _, data in frames].count("[DONE]") == 1
    assert frames[-1] == ("", "[DONE]")
    found = chunks(frames)
    reasons = [choice.finish_reason for chunk in found for choice in chunk.choices if choice.finish_reason]
    errors = [data for _, data in frames if data != "[DONE]" and "error" in data]
    assert (len(reasons), len(errors)) == ((1, 0) if end.state == "committed" else (0, 1))
    state = ChatCompletionStreamState()
    for chunk in found:
        list(state.handle_chunk(chunk))
    said = "".join(body.text for body in bodies if isinstance(body, TextDelta))
    assert "".join((state.current_completion_snapshot.choices[0].message.content or "").split()) == "".join(
        said.split()
    )
    if end.state == "committed":
        whole(*bodies, end)


def test_a_completion_has_the_id_and_the_time_of_its_turn() -> None:
    turn = new_id("turn")
    chunks = [
        data for _ in range(2) for _, data in stream_frames([TextDelta("hi"), END], turn=turn) if data != "[DONE]"
    ]
    assert {(chunk["id"], chunk["created"]) for chunk in chunks} == {(f"chatcmpl-{turn[5:]}", creation_time(turn))}
