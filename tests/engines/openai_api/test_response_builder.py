"""Tests the differences between the answers of servers, over a real socket."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.core.messages import ToolCall, Usage, assistant, user
from agent_kernel.core.protocols import OutputFormat, ReasoningChunk, Sampling, TextChunk, TokenLogprob
from tests.engines.openai_api.talk import PYTHON, asked_of, calls_of, end_of, text_of, thought_of
from tests.engines.openai_api.wire_server import HELLO, Reply, WireServer, call, delta, json_reply, sse, usage

TOOLS: dict[str, Any] = {"tools": (PYTHON,)}


async def ask_server(reply: Reply, *messages: Any, **options: Any) -> list[Any]:
    async with WireServer([reply]) as server:
        return await asked_of(server, *messages, **options)


async def test_text_comes_in_the_pieces_it_was_sent_in() -> None:
    chunks = await ask_server(HELLO)
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)] == ["Hel", "lo."]
    assert end_of(chunks).reason == "stop"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart(name: str) -> None:
    chunks = await ask_server(sse(delta(**{name: "Hm."}), delta(content="4"), delta("stop")))
    assert chunks[:2] == [ReasoningChunk("Hm."), TextChunk("4")]


async def test_reasoning_that_is_sent_under_both_names_is_told_once() -> None:
    assert thought_of(await ask_server(sse(delta(reasoning="a", reasoning_content="a"), delta("stop")))) == "a"


async def test_content_can_be_a_list_of_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "4"}]
    chunks = await ask_server(sse(delta(content=parts), delta("stop")))
    assert (thought_of(chunks), text_of(chunks)) == ("Hm", "4")


ARGUMENTS = '{"code": "print(1)"}'
WHOLE = {"name": "python", "arguments": ARGUMENTS}
TELLINGS = {
    "in pieces": [
        call(0, call_id="abc", name="python", arguments=""),
        call(0, arguments='{"code": '),
        call(0, arguments='"print(1)"}'),
    ],
    "empty names later": [
        call(0, call_id="abc", name="python", arguments='{"code":'),
        call(0, name="", arguments='"print(1)"}'),
    ],
    "the name again": [
        call(0, call_id="abc", name="python", arguments='{"code":'),
        call(0, name="python", arguments='"print(1)"}'),
    ],
    "the id again": [
        call(0, call_id="abc", name="python", arguments='{"code":'),
        call(0, call_id="abc", name="python", arguments='"print(1)"}'),
    ],
    "null": [call(0, call_id="abc", name="python", arguments=None), call(0, name=None, arguments=ARGUMENTS)],
    "at once": [call(0, call_id="abc", **WHOLE)],
    "without an id": [call(0, **WHOLE)],
    "without an index": [call(None, call_id="abc", **WHOLE)],
    "without an index, in pieces": [
        call(None, call_id="abc", name="python", arguments=""),
        call(None, arguments=ARGUMENTS),
    ],
    "arguments as an object": [call(0, call_id="abc", name="python", arguments={"code": "print(1)"})],
}


@pytest.mark.parametrize("events", TELLINGS.values(), ids=TELLINGS.keys())
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_a_call_is_the_same_however_it_is_told(events: list[Any], finish: str) -> None:
    chunks = await ask_server(sse(*events, delta(finish)), **TOOLS)
    [made] = calls_of(chunks)
    assert (made.name, made.arguments) == ("python", {"code": "print(1)"})
    assert made.id
    assert end_of(chunks).reason == "calls"


@pytest.mark.parametrize("indexes", [(0, 1), (0, 0), (None, None)], ids=["own indexes", "all with 0", "none"])
async def test_calls_at_once_are_told_apart(indexes: tuple[int | None, int | None]) -> None:
    first, second = (call(index, call_id=name, **WHOLE) for index, name in zip(indexes, "ab", strict=True))
    chunks = await ask_server(sse(first, second, delta("tool_calls")), **TOOLS)
    assert [made.arguments for made in calls_of(chunks)] == [{"code": "print(1)"}] * 2
    assert len({made.id for made in calls_of(chunks)}) == 2


async def test_pieces_of_two_calls_may_alternate() -> None:
    events = [call(0, call_id="a", name="python", arguments=""), call(1, call_id="b", name="python", arguments="")]
    events += [
        call(0, arguments='{"code":'),
        call(1, arguments='{"code":'),
        call(0, arguments='"0"}'),
        call(1, arguments='"1"}'),
    ]
    chunks = await ask_server(sse(*events, delta("tool_calls")), **TOOLS)
    assert [made.arguments["code"] for made in calls_of(chunks)] == ["0", "1"]


async def test_an_id_that_the_conversation_has_already_is_replaced() -> None:
    earlier = assistant("", [ToolCall("call_0", "python", {})])
    events = [call(0, call_id="call_0", **WHOLE), call(1, call_id="call_0", **WHOLE), delta("tool_calls")]
    chunks = await ask_server(sse(*events), user("x"), earlier, user("y"), **TOOLS)
    assert len({"call_0", *(made.id for made in calls_of(chunks))}) == 3


async def test_a_call_without_arguments_has_none() -> None:
    [made] = calls_of(
        await ask_server(sse(call(0, call_id="a", name="python", arguments=""), delta("tool_calls")), **TOOLS)
    )
    assert made.arguments == {}


async def test_arguments_that_are_no_object_are_kept_for_the_toolbox_to_refuse() -> None:
    [made] = calls_of(await ask_server(sse(call(0, name="python", arguments="{code: 1"), delta("tool_calls")), **TOOLS))
    assert made.arguments == {"_raw": "{code: 1"}


async def test_a_call_that_was_cut_by_the_limit_is_shown_and_not_made() -> None:
    events = [
        call(0, call_id="a", **WHOLE),
        call(1, call_id="b", name="python", arguments='{"code": "whi'),
        delta("length"),
    ]
    chunks = await ask_server(sse(*events), **TOOLS)
    assert calls_of(chunks) == []
    assert '{"code": "whi' in text_of(chunks)
    assert end_of(chunks).reason == "length"


@pytest.mark.parametrize("options", [{}, {**TOOLS, "tool_choice": "none"}])
async def test_calls_that_nobody_asked_for_are_not_made(options: dict[str, Any]) -> None:
    chunks = await ask_server(sse(delta(content="x"), call(0, call_id="a", **WHOLE), delta("tool_calls")), **options)
    assert calls_of(chunks) == []


async def test_without_parallel_calls_the_first_one_is_made() -> None:
    events = [call(0, call_id="a", **WHOLE), call(1, call_id="b", **WHOLE), delta("tool_calls")]
    assert len(calls_of(await ask_server(sse(*events), **TOOLS, parallel_calls=False))) == 1


async def test_an_answer_that_is_not_streamed_is_taken_too() -> None:
    message = {
        "role": "assistant",
        "content": "Hi.",
        "tool_calls": [{"id": "a", "type": "function", "function": WHOLE}],
    }
    whole = {"choices": [{"message": message, "finish_reason": "tool_calls"}], **usage(9, 3)}
    whole["choices"] = [{"message": message, "finish_reason": "tool_calls"}]
    chunks = await ask_server(json_reply(whole), **TOOLS)
    assert text_of(chunks) == "Hi."
    assert [made.id for made in calls_of(chunks)] == ["a"]
    assert end_of(chunks).usage.prompt_tokens == 9


@pytest.mark.parametrize("name", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize(("told", "stopped"), [("END", "END"), (128009, ""), (None, ""), ("other", "")])
async def test_the_stop_sequence_that_a_server_names_is_told_if_it_is_one_of_ours(
    name: str, told: object, stopped: str
) -> None:
    last = delta("stop")
    last["choices"][0][name] = told
    chunks = await ask_server(sse(delta(content="Hi"), last), sampling=Sampling(stop=("END",)))
    assert end_of(chunks).stopped == stopped


async def test_counts_are_the_servers() -> None:
    used = end_of(await ask_server(sse(delta(content="Hi"), delta("stop"), usage(100, 7, 64)))).usage
    assert (used.prompt_tokens, used.completion_tokens, used.reused_tokens, used.estimated) == (100, 7, 64, False)
    assert 0 < used.first_token_s <= used.seconds


async def test_what_a_server_does_not_count_is_an_estimate_and_says_so() -> None:
    used = end_of(await ask_server(HELLO)).usage
    assert used.estimated
    assert used.prompt_tokens > 0
    assert used.completion_tokens > 0
    assert used.reused_tokens == 0
    assert Usage.from_json(used.to_json()).estimated
    assert (used + Usage(1, 1)).estimated


@pytest.mark.parametrize("nonsense", [{"prompt_tokens": -1}, {"prompt_tokens": "many"}, {"prompt_tokens": True}, [], 3])
async def test_counts_that_make_no_sense_are_none(nonsense: Any) -> None:
    assert end_of(
        await ask_server(sse(delta(content="Hi"), delta("stop"), {"choices": [], "usage": nonsense}))
    ).usage.estimated


async def test_log_probabilities_come_with_their_text() -> None:
    event = delta(content="Hi")
    event["choices"][0]["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.5}]}
    chunks = await ask_server(sse(event, delta("stop")), sampling=Sampling(logprobs=True))
    assert chunks[0] == TextChunk("Hi", (TokenLogprob("Hi", -0.5),))


async def test_text_can_be_stored_whatever_was_sent() -> None:
    text = text_of(await ask_server(sse(delta(content="a\ud800b"), delta(content="\ud83d\ude00"), delta("stop"))))
    assert text == "a\ufffdb\U0001f600"


@pytest.mark.parametrize("finish", ["content_filter", "abort"])
async def test_an_answer_that_the_server_breaks_off_is_an_error(finish: str) -> None:
    with pytest.raises(EngineError, match=finish):
        await ask_server(sse(delta(content="x"), delta(finish)))


async def test_an_error_in_the_stream_is_an_error() -> None:
    with pytest.raises(EngineError, match="out of memory"):
        await ask_server(sse(delta(content="x"), {"error": {"message": "out of memory", "code": 500}}))


@pytest.mark.parametrize("text", ["no JSON", "", '"text"'])
async def test_a_form_that_was_ignored_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match="form"):
        await ask_server(sse(delta(content=text), delta("stop"), done=bool(text)), output=OutputFormat("json_object"))


async def test_a_form_that_was_kept_is_an_answer() -> None:
    chunks = await ask_server(sse(delta(content='{"a": 1}'), delta("stop")), output=OutputFormat("json_object"))
    assert text_of(chunks) == '{"a": 1}'
