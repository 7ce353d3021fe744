"""Tests answers whose stream breaks off in the middle, over real sockets: the rest is requested from servers that
continue answers, and from no others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.protocols import Chunk, EngineRequest, OutputFormat, Sampling
from agent_kernel.engines.openai_api import retry
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.talk import PYTHON, ask, calls_of, end_of, text_of, waits_of
from tests.engines.openai_api.test_faults import collect
from tests.engines.openai_api.wire_server import (
    WHOLE,
    Asked,
    Json,
    Reply,
    WireServer,
    call,
    delta,
    dropped,
    raw_stream,
    silent,
    sse,
    status,
    usage,
)
from tests.waiting import until

VLLM = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 8192}
OURS = {"id": "m", "owned_by": "agent-kernel", "capabilities": {"continue_final_message": True}}
TEXT = "Größe: 7 €\n\n- one\n- two 🦊 three\n"
HALF = call(0, call_id="a", name="python", arguments='{"code": "imp')


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)


def engine_of(server: WireServer, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(Endpoint(server.url, "m", context_length=8192, **options))


async def answer_of(server: WireServer, **options: Any) -> list[Chunk]:
    engine = engine_of(server)
    try:
        return await ask(engine, **options)
    finally:
        await engine.aclose()


async def error_of(server: WireServer, **options: Any) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await answer_of(server, **options)
    return caught.value


def lost(*events: Any, cut: bool = True) -> Reply:
    return sse(*events, 0.05, done=False, cut=cut)  # an abort at once would take the events with it


def said(text: str) -> Json:
    return delta(content=text)


def sent_back(chat: Json) -> str:
    assert chat["messages"][-1]["role"] == "assistant"
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)
    return str(chat["messages"][-1]["content"])


def pieces_of(text: str) -> list[Json]:
    return [said(text[at : at + 2]) for at in range(0, len(text), 2)]


def line(event: Json) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


class Continuing:
    """Answers with TEXT in pieces of two characters. The stream breaks off after ``cut`` bytes, once; a request that
    continues the text gets the rest."""

    def __init__(self, cut: int, *, closes: bool) -> None:
        self._cut = cut
        self._closes = closes

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        begun = str(asked.body["messages"][-1]["content"]) if asked.body.get("continue_final_message") else ""
        assert TEXT.startswith(begun)
        rest = TEXT.removeprefix(begun)
        events = [*pieces_of(rest), delta("stop"), usage(10 + len(begun), len(rest))]
        whole = b"".join([*map(line, events), b"data: [DONE]\n\n"])
        cut, self._cut = self._cut, len(whole)
        is_cut = cut < len(whole)
        await raw_stream(whole[:cut] or b": hello\n\n", 0.02, cut=is_cut and not self._closes)(asked, writer)


@pytest.mark.parametrize("closes", [False, True], ids=["reset", "closed"])
async def test_the_text_is_whole_at_whatever_byte_its_stream_breaks_off(closes: bool) -> None:
    async def answer(cut: int) -> None:
        async with WireServer([Continuing(cut, closes=closes)], models=[VLLM]) as server:
            chunks = await answer_of(server)
            assert text_of(chunks) == TEXT, cut
            assert len(server.chats) == 2
            begun = server.chats[1].get("messages", [])[-1]
            counted = len(begun["content"]) if begun["role"] == "assistant" else 0
            used = end_of(chunks).usage
            assert (used.prompt_tokens, used.completion_tokens) == (10 + counted, len(TEXT) - counted)
            assert not used.estimated

    whole = b"".join(map(line, pieces_of(TEXT)))
    within_characters = [cut for cut in range(len(whole)) if 0x80 <= whole[cut] < 0xC0]
    cuts = sorted({*range(0, len(whole), 7), *within_characters})
    assert len(within_characters) == 7
    for begin in range(0, len(cuts), 20):
        await asyncio.gather(*map(answer, cuts[begin : begin + 20]))


@pytest.mark.parametrize("model", [VLLM, OURS, {"id": "m", "owned_by": "sglang"}])
async def test_the_rest_is_requested_from_a_server_that_announces_it(model: Json) -> None:
    async with WireServer([lost(said("One ")), sse(said(" two."), delta("stop"))], models=[model]) as server:
        chunks = await answer_of(server, session="s")
    assert text_of(chunks) == "One two."
    assert sent_back(server.chats[1]) == "One"
    assert waits_of(chunks)[0].startswith(f"The connection to {server.host} was lost in the middle of the answer.")
    assert "continue_final_message" not in server.chats[0]
    posts = [asked for asked in server.asked if asked.method == "POST"]
    assert posts[0].headers["x-session-id"] == posts[1].headers["x-session-id"]


async def test_a_stream_may_break_off_several_times_but_not_more_often_than_a_request_is_sent() -> None:
    parts = [lost(said("a"), said("b")), lost(), status(503, {}), sse(said("c"), delta("stop"))]
    async with WireServer(parts, models=[VLLM]) as server:
        assert text_of(await answer_of(server)) == "abc"
    assert [sent_back(chat) for chat in server.chats[1:]] == ["ab"] * 3
    async with WireServer([lost(said("ab")), *[lost(said(text)) for text in "cdefg"]], models=[VLLM]) as server:
        error = await error_of(server)
    assert error.message == f"The connection to {server.host} was lost in the middle of the answer."
    assert [sent_back(chat) for chat in server.chats[1:]] == ["ab", "abc", "abcd"]


async def test_a_server_that_announces_nothing_is_not_asked_for_the_rest() -> None:
    for models in (None, [], [{"id": "m", "owned_by": "openai"}], [{"id": "other", "owned_by": "vllm"}]):
        async with WireServer([lost(said("One ")), sse(said(" two."), delta("stop"))], models=models) as server:
            error = await error_of(server)
        assert error.message == f"The connection to {server.host} was lost in the middle of the answer."
        assert len(server.chats) == 1


async def test_a_configuration_can_say_that_the_server_continues_answers() -> None:
    async with WireServer([lost(said("One")), sse(said(" two."), delta("stop"))]) as server:
        engine = engine_of(server, continues=True)
        assert engine.info().continues
        assert text_of(await ask(engine)) == "One two."
        await engine.aclose()
    with pytest.raises(InvalidRequest, match="continues"):
        Endpoint("http://127.0.0.1/v1", continues="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (400, {"detail": [{"loc": ["body", "continue_final_message"], "msg": "Extra inputs are not permitted"}]}),
        (422, {"detail": "Unexpected fields in the request: {'continue_final_message'}"}),
        (400, {"error": {"message": "Last message must be a user's."}}),
        (400, {"error": {"message": "maximum context length is 512 tokens"}}),
        (404, {"error": {"message": "The model `m` does not exist."}}),
    ],
)
async def test_a_server_that_refuses_the_rest_ends_the_answer_with_the_error_of_its_stream(
    code: int, refusal: Json
) -> None:
    replies = [lost(said("One")), status(code, refusal), lost(said("One"))]
    async with WireServer(replies, models=[VLLM]) as server:
        engine = engine_of(server)
        for _ in range(2 if "continue" in str(refusal) else 1):
            with pytest.raises(EngineError) as caught:
                await ask(engine)
            assert caught.value.message == f"The connection to {server.host} was lost in the middle of the answer."
        await engine.aclose()
    assert len(server.chats) == (3 if "continue" in str(refusal) else 2), "a field that was refused is not sent again"


@pytest.mark.parametrize(
    "events",
    [
        [said("One two three four.")],
        [said("On"), said("e two"), said(" three four.")],
        [said("\n"), said("One two three")],
        [delta(reasoning="Hm."), said("Two three.")],
    ],
)
async def test_a_server_that_begins_the_answer_again_adds_nothing_to_it(events: Sequence[Json]) -> None:
    again = sse(*events, delta("stop"))
    async with WireServer([lost(said("One two "), said("three")), again, again], models=[VLLM]) as server:
        engine, seen = engine_of(server), list[Chunk]()
        with pytest.raises(EngineError, match="was lost in the middle of the answer"):
            await collect(engine, EngineRequest((user("x"),)), seen)
        assert text_of(seen) == "One two three"
        assert not engine.info().continues
        await engine.aclose()
    assert len(server.chats) == 2


async def test_a_rest_that_begins_like_the_answer_but_differs_is_no_second_beginning() -> None:
    parts = [lost(said("One two three, ")), sse(said(" One"), said(" two"), said(" four."), delta("stop"))]
    async with WireServer(parts, models=[VLLM]) as server:
        assert text_of(await answer_of(server)) == "One two three, One two four."
    async with WireServer([parts[0], sse(said(" One"), delta("stop"))], models=[VLLM]) as server:
        assert text_of(await answer_of(server)) == "One two three, One"


async def test_a_half_call_is_dropped_and_the_text_before_it_continued() -> None:
    whole = sse(call(0, call_id="b", **WHOLE), delta("tool_calls"))
    async with WireServer([lost(said("I compute. "), HALF), whole], models=[VLLM]) as server:
        chunks = await answer_of(server, tools=(PYTHON,))
    assert text_of(chunks) == "I compute. "
    assert [(made.id, made.arguments) for made in calls_of(chunks)] == [("b", {"code": "1"})]
    assert end_of(chunks).reason == "calls"
    assert sent_back(server.chats[1]) == "I compute."
    assert "tool_calls" not in server.chats[1]["messages"][-1]


@pytest.mark.parametrize("broken", [HALF, call(0, call_id="a", **WHOLE)], ids=["half", "whole"])
async def test_a_call_without_text_is_requested_again_from_any_server(broken: Json) -> None:
    whole = sse(call(0, call_id="b", **WHOLE), delta("tool_calls"))
    async with WireServer([lost(broken), whole]) as server:
        chunks = await answer_of(server, tools=(PYTHON,), tool_choice="required")
    assert [(made.id, made.arguments) for made in calls_of(chunks)] == [("b", {"code": "1"})]
    assert server.chats[0] == server.chats[1]


@pytest.mark.parametrize(
    ("events", "options"),
    [
        ([delta(reasoning="Hm.")], {}),
        ([delta(reasoning="Hm."), said("One")], {}),
        ([delta(reasoning="Hm."), HALF], {"tools": (PYTHON,)}),
        ([said('{"a": ')], {"output": OutputFormat("json_object")}),
        ([said("I call it."), HALF], {"tools": (PYTHON,), "tool_choice": "required"}),
    ],
)
async def test_reasoning_and_forms_are_not_continued(events: Sequence[Json], options: Json) -> None:
    async with WireServer([lost(*events), sse(said("more"), delta("stop"))], models=[VLLM]) as server:
        assert "in the middle" in (await error_of(server, **options)).message
    assert len(server.chats) == 1


async def test_a_connection_that_is_lost_after_the_end_of_an_answer_costs_nothing() -> None:
    async with WireServer([lost(said("One."), delta("stop"))], models=[VLLM]) as server:
        assert text_of(await answer_of(server)) == "One."
    assert len(server.chats) == 1


async def test_the_rest_may_have_only_the_tokens_that_are_left() -> None:
    parts = [lost(*map(said, "abc")), sse(said("d"), delta("length"))]
    async with WireServer(parts, models=[VLLM]) as server:
        chunks = await answer_of(server, sampling=Sampling(max_tokens=4))
    assert [chat["max_tokens"] for chat in server.chats] == [4, 1]
    assert end_of(chunks).reason == "length"


async def test_without_counts_of_the_server_the_estimate_is_that_of_the_last_request() -> None:
    parts = [lost(usage(900, 1), said("a" * 40)), sse(said("b" * 40), delta("stop"))]
    async with WireServer(parts, models=[VLLM]) as server:
        used = end_of(await answer_of(server)).usage
    assert used.estimated
    assert used.completion_tokens == 10
    assert 10 < used.prompt_tokens < 900
    assert 0 < used.first_token_s < used.seconds


@pytest.mark.parametrize("second", [silent, status(503, {}, Retry_After="30"), sse(said("b"), 60.0)])
async def test_an_answer_is_cancelled_while_its_rest_is_awaited(second: Reply) -> None:
    async with WireServer([lost(said("a")), second], models=[VLLM]) as server:
        engine = engine_of(server)
        task = asyncio.create_task(ask(engine))
        await until(lambda: len(server.chats) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.aclose()
        await asyncio.wait_for(server.idle(), 30)
    assert len(server.chats) == 2


async def test_a_server_that_is_away_for_a_moment_is_asked_for_its_models_again() -> None:
    gone = lost(said("One"))
    async with WireServer([gone, sse(said(" two."), delta("stop"))], models=[VLLM]) as server:
        answered = server._reply

        def reply(asked: Asked) -> Reply:
            listings = sum(earlier.method == "GET" for earlier in server.asked)
            return dropped if asked.method == "GET" and listings == 1 else answered(asked)

        server._reply = reply  # type: ignore[method-assign]
        assert text_of(await answer_of(server)) == "One two."
    assert [asked.method for asked in server.asked] == ["POST", "GET", "GET", "POST"]


async def test_a_request_that_continues_an_answer_is_continued_from_its_own_rest() -> None:
    parts = [lost(said(" two")), sse(said(" three"), delta("stop"))]
    async with WireServer(parts, models=[VLLM]) as server:
        engine = engine_of(server)
        chunks = await ask(engine, user("x"), assistant("One"), continues=True)
        await engine.aclose()
    assert text_of(chunks) == " two three"
    assert [sent_back(chat) for chat in server.chats] == ["One", "One two"]
