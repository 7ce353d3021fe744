"""Tests servers that fail, refuse or hang, over real sockets, and clients that disconnect."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

import pytest

from agent_kernel.core.errors import ContextOverflow, EngineError, EngineUnreachable, InvalidRequest, UnknownModel
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, OutputFormat, Sampling, TextChunk, WaitChunk
from agent_kernel.engines.openai_api import retry
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.talk import PYTHON, ask, asked_of, error_of, text_of, waits_of
from tests.engines.openai_api.wire_server import (
    HELLO,
    WHOLE,
    Reply,
    WireServer,
    call,
    delta,
    dropped,
    raw_stream,
    silent,
    sse,
    status,
)
from tests.waiting import until

BUSY = status(503, {"error": {"message": "loading"}}, Retry_After="0.01")


@pytest.mark.parametrize(
    "fault", [BUSY, status(429, {}, Retry_After="0.01"), status(500, b"<html>", Retry_After="0"), dropped]
)
async def test_what_fails_before_the_answer_is_tried_again_and_told(fault: Reply) -> None:
    async with WireServer([fault, HELLO]) as server:
        chunks = await asked_of(server)
        host = server.host
    assert text_of(chunks) == "Hello."
    [wait] = waits_of(chunks)
    assert host in wait
    assert "Trying again in" in wait
    assert server.chats[0] == server.chats[1]


async def test_requests_of_a_session_and_their_repetitions_share_an_id_for_routers() -> None:
    async with WireServer([HELLO, BUSY, HELLO]) as server:
        for session in ("zoe/one", "zoe/one", "zoe/two", ""):
            await asked_of(server, session=session)
    posts = [asked for asked in server.asked if asked.method == "POST"]
    ids = [asked.headers.get("x-session-id", "") for asked in posts]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert ids[4] == ""
    assert "zoe" not in "".join(ids)
    assert [asked.body.get("prompt_cache_key", "") for asked in posts] == ids


async def test_a_server_that_refuses_the_cache_key_is_asked_without_it() -> None:
    refusal = status(400, {"error": {"message": "Unrecognized request argument supplied: prompt_cache_key"}})
    async with WireServer([refusal, HELLO]) as server:
        assert text_of(await asked_of(server, session="zoe/one")) == "Hello."
    assert ["prompt_cache_key" in chat for chat in server.chats] == [True, False]
    assert server.asked[-1].headers["x-session-id"]


async def test_a_server_that_always_fails_is_asked_only_a_few_times() -> None:
    async with WireServer([BUSY]) as server:
        with pytest.raises(EngineError, match="HTTP 503: loading"):
            await asked_of(server)
    assert len(server.chats) == 4


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422])
async def test_what_was_refused_is_not_tried_again(code: int) -> None:
    async with WireServer([status(code, {"error": {"message": "no"}})]) as server:
        with pytest.raises(EngineError, match=f"HTTP {code}"):
            await asked_of(server)
    assert len(server.chats) == 1


async def test_a_used_up_quota_is_not_tried_again() -> None:
    async with WireServer([status(429, {"error": {"message": "pay", "code": "insufficient_quota"}})]) as server:
        with pytest.raises(EngineError, match="pay"):
            await asked_of(server)
    assert len(server.chats) == 1


async def test_a_server_that_wants_an_hour_is_not_waited_for() -> None:
    async with WireServer([status(429, {"error": "slow down"}, Retry_After="3600")]) as server:
        with pytest.raises(EngineError, match="slow down"):
            await asked_of(server)
    assert len(server.chats) == 1


@pytest.mark.parametrize("said", [delta(content="half"), delta(reasoning="hm")])
@pytest.mark.parametrize("how", ["cut", "closed"])
async def test_an_answer_that_breaks_off_is_an_error_and_never_asked_for_again(said: Any, how: str) -> None:
    reply = sse(said, done=False, cut=how == "cut")
    async with WireServer([reply, HELLO]) as server:
        with pytest.raises(EngineError, match=r"in the middle"):
            await asked_of(server, tools=(PYTHON,))
    assert len(server.chats) == 1


ROLE = delta(role="assistant", content="")


@pytest.mark.parametrize(
    "reply",
    [
        sse(ROLE, done=False, cut=True),
        sse(ROLE, done=False),
        sse(done=False),
        sse(ROLE, {"error": {"message": "the replica died", "code": 503}}),
    ],
    ids=["cut", "closed", "empty", "error"],
)
async def test_an_answer_that_breaks_off_before_its_first_token_is_asked_for_again(
    reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)
    async with WireServer([reply, HELLO]) as server:
        chunks = await asked_of(server)
        host = server.host
    assert text_of(chunks) == "Hello."
    [wait] = waits_of(chunks)
    assert host in wait
    assert len(server.chats) == 2


@pytest.mark.parametrize("code", [400, None, "insufficient_quota"])
async def test_an_error_in_the_stream_that_does_not_pass_is_not_asked_for_again(code: Any) -> None:
    async with WireServer([sse(ROLE, {"error": {"message": "no", "code": code}}), HELLO]) as server:
        with pytest.raises(EngineError, match=f"{server.host} stopped with an error: no"):
            await asked_of(server)
    assert len(server.chats) == 1


async def test_an_answer_that_breaks_off_names_the_server() -> None:
    async with WireServer([sse(delta(content="half"), done=False, cut=True)]) as server:
        with pytest.raises(EngineError, match=f"The connection to {server.host} was lost in the middle"):
            await asked_of(server)


async def test_no_call_comes_of_an_answer_that_breaks_off() -> None:
    async with WireServer([sse(call(0, call_id="a", **WHOLE), 0.01, done=False, cut=True)]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9))
        seen: list[Any] = []
        with pytest.raises(EngineError):
            await collect(engine, EngineRequest((user("x"),), (PYTHON,)), seen)
        await engine.aclose()
    assert [chunk for chunk in seen if not isinstance(chunk, WaitChunk)] == []


async def collect(engine: OpenAIEngine, request: EngineRequest, seen: list[Any]) -> None:
    async for chunk in engine.stream(request):
        seen.append(chunk)


async def test_a_server_that_is_not_there_is_named() -> None:
    async with WireServer() as server:
        host, url = server.host, server.url
    engine = OpenAIEngine(Endpoint(url, "m", tries=1))
    with pytest.raises(EngineUnreachable, match=host) as caught:
        await ask(engine)
    assert caught.value.details["host"] == host
    await engine.aclose()


async def test_a_refused_key_names_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-wrong")
    async with WireServer([status(401, {"error": {"message": "Incorrect API key: sk-wrong"}})]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env="MY_KEY", context_length=9))
        with pytest.raises(EngineError) as caught:
            await ask(engine)
        await engine.aclose()
    assert "MY_KEY" in caught.value.hint
    assert "sk-wrong" not in str(caught.value.to_json())


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": "The model `m` does not exist.", "code": "model_not_found"}},
        {"error": {"message": "model 'm' not found"}},
        {"object": "error", "message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404},
    ],
)
async def test_an_unknown_model_is_answered_with_the_list(refusal: Any) -> None:
    async with WireServer([status(404, refusal)], models=[{"id": "a/b"}, {"id": "c"}]) as server:
        with pytest.raises(UnknownModel) as caught:
            await asked_of(server)
    assert caught.value.hint == "The server has: a/b, c."


async def test_a_url_that_is_no_such_server_says_where_the_routes_commonly_are() -> None:
    assert "/v1" in (await error_of(status(404, b"<h1>Not Found</h1>"))).hint


@pytest.mark.parametrize(
    ("code", "refusal", "length"),
    [
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens"
                }
            },
            4096,
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (900) exceeds the available context size (512 tokens)",
                    "type": "exceed_context_size_error",
                }
            },
            512,
        ),
        (413, {"error": {"message": "prompt is too long"}}, 0),
    ],
)
async def test_a_conversation_that_is_too_long_is_named_and_its_limit_remembered(
    code: int, refusal: Any, length: int
) -> None:
    async with WireServer([status(code, refusal)], models=[]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m"))
        with pytest.raises(ContextOverflow, match="prompt is too long: it is longer than m"):
            await ask(engine)
        assert engine.info().context_length == length
        await engine.aclose()
    assert len(server.chats) == 1


async def test_vllm_without_a_tool_parser_is_told_how_to_start() -> None:
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    assert "--enable-auto-tool-choice" in (await error_of(status(400, {"message": words}), tools=(PYTHON,))).hint


UNKNOWN = [
    (422, {"detail": "Unexpected fields in the request: {'min_p', 'top_k'}"}, {"top_k", "min_p"}),
    (422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted", "input": 5}]}, {"top_k"}),
    (400, {"error": {"message": "Unrecognized request argument", "param": "seed"}}, {"seed"}),
]


@pytest.mark.parametrize(("code", "refusal", "fields"), UNKNOWN)
async def test_fields_a_server_does_not_know_are_left_out_told_and_remembered(
    code: int, refusal: Any, fields: set[str]
) -> None:
    sampling = Sampling(top_k=5, min_p=0.1, seed=1)
    async with WireServer([status(code, refusal), HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9))
        first = await ask(engine, sampling=sampling)
        await ask(engine, sampling=sampling)
        await engine.aclose()
    assert all(field in waits_of(first)[0] for field in fields)
    sent = [fields & set(body) for body in server.chats]
    assert sent == [fields, set(), set()]
    assert set(engine.info().details["not_sent"]) == fields


async def test_the_limit_of_tokens_goes_under_its_new_name_where_the_old_one_is_refused() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    async with WireServer([status(400, {"error": {"message": words, "param": "max_tokens"}}), HELLO]) as server:
        await asked_of(server, sampling=Sampling(max_tokens=7))
    assert server.chats[1]["max_completion_tokens"] == 7
    assert "max_tokens" not in server.chats[1]


@pytest.mark.parametrize(
    "words", ["temperature must be between 0 and 2", "tools is not supported", "response_format: unknown field"]
)
async def test_what_would_change_the_question_is_not_left_out(words: str) -> None:
    async with WireServer([status(400, {"error": {"message": words}}), HELLO]) as server:
        with pytest.raises(EngineError, match="HTTP 400"):
            await asked_of(server, tools=(PYTHON,), sampling=Sampling(temperature=9))
    assert len(server.chats) == 1


# ---------------------------------------------------------------------------------------------------- time


async def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer([silent]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9, first_token_s=0.1))
        with pytest.raises(EngineError, match=r"nothing for 0\.1 seconds"):
            await ask(engine)
        await asyncio.wait_for(server.left.wait(), 30)
        await engine.aclose()


@pytest.mark.parametrize("noise", [b": keep-alive\n\n", b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'])
async def test_keep_alives_are_no_tokens(noise: bytes) -> None:
    pieces: list[bytes | float] = [noise, 0.03] * 200
    async with WireServer([raw_stream(*pieces)]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9, first_token_s=0.3))
        with pytest.raises(EngineError, match=r"nothing for 0\.3 seconds"):
            await ask(engine)
        await engine.aclose()


async def test_a_server_that_falls_silent_is_given_up() -> None:
    async with WireServer([sse(delta(content="x"), 30.0, delta("stop"))]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9, between_tokens_s=0.1))
        with pytest.raises(EngineError, match=r"nothing for 0\.1 seconds"):
            await ask(engine)
        await engine.aclose()


async def test_a_slow_server_that_speaks_is_waited_for() -> None:
    pieces = [event for _ in range(5) for event in (delta(content="x"), 0.1)]
    async with WireServer([sse(*pieces, delta("stop"))]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9, first_token_s=5, between_tokens_s=0.4))
        assert text_of(await ask(engine)) == "xxxxx"
        await engine.aclose()


async def test_the_server_sees_at_once_that_its_reader_left() -> None:
    async with WireServer([sse(delta(content="x"), 60.0, delta("stop"))]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9))
        async with aclosing(engine.stream(EngineRequest((user("x"),)))) as chunks:
            assert await anext(chunks) == TextChunk("x")
        await asyncio.wait_for(server.left.wait(), 30)
        await engine.aclose()


@pytest.mark.parametrize("reply", [silent, BUSY, sse(delta(content="x"), 60.0)], ids=["silent", "busy", "speaking"])
async def test_a_cancelled_request_leaves_nothing_behind(reply: Reply) -> None:
    async with WireServer([reply]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9, tries=100))
        task = asyncio.create_task(ask(engine))
        await until(lambda: server.chats)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.aclose()
        await asyncio.wait_for(server.idle(), 30)


async def test_answers_at_once_do_not_wait_for_each_other() -> None:
    async with WireServer([sse(delta(content="x"), 0.3, delta("stop"))]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9))
        started = time.monotonic()
        await asyncio.gather(*(ask(engine) for _ in range(20)))
        assert time.monotonic() - started < 20 * 0.3
        await engine.aclose()


# ---------------------------------------------------------------------------------------------------- what there is


async def test_the_only_model_of_a_server_need_not_be_named() -> None:
    async with WireServer([HELLO], models=[{"id": "a/b", "max_model_len": 4096}]) as server:
        engine = OpenAIEngine(Endpoint(server.url))
        assert engine.info().model == server.host
        await ask(engine)
        await ask(engine)
        await engine.aclose()
    assert server.chats[0]["model"] == "a/b"
    assert (engine.info().model, engine.info().context_length) == ("a/b", 4096)
    assert sum(asked.method == "GET" for asked in server.asked) == 1


async def test_one_of_several_models_must_be_named() -> None:
    async with WireServer([HELLO], models=[{"id": "a"}, {"id": "b"}]) as server:
        engine = OpenAIEngine(Endpoint(server.url))
        with pytest.raises(UnknownModel, match="a, b"):
            await ask(engine)
        await engine.aclose()


async def test_an_answer_without_an_end_mark_but_with_done_is_whole() -> None:
    async with WireServer([sse(delta(content="x"))]) as server:
        assert text_of(await asked_of(server)) == "x"


async def test_what_changes_the_answer_is_sent_and_its_refusal_is_the_requests() -> None:
    sampling = Sampling(
        logprobs=True, top_logprobs=2, presence_penalty=0.5, logit_bias=((7, -1.0),), reasoning_effort="high"
    )
    words = "Unsupported parameter: 'logit_bias' is not supported with this model."
    async with WireServer([status(400, {"error": {"message": words, "param": "logit_bias"}})]) as server:
        with pytest.raises(InvalidRequest, match="logit_bias") as refused:
            await asked_of(server, sampling=sampling)
    [sent] = server.chats
    assert (sent["top_logprobs"], sent["presence_penalty"], sent["logit_bias"]) == (2, 0.5, {"7": -1.0})
    assert sent["reasoning_effort"] == "high"
    assert refused.value.details["param"] == "logit_bias"


async def test_a_grammar_is_sent_as_vllm_has_it_and_alternatives_are_told() -> None:
    top = [{"token": "Hi", "logprob": -0.1}, {"token": "Ho", "logprob": -2.0}]
    logprobs = {"content": [{"token": "Hi", "logprob": -0.1, "top_logprobs": top}]}
    said = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop", "logprobs": logprobs}]}
    async with WireServer([sse(said)]) as server:
        output = OutputFormat("grammar", grammar="root ::= x")
        chunks = await asked_of(server, sampling=Sampling(logprobs=True, top_logprobs=2), output=output)
    assert server.chats[0]["structured_outputs"] == {"grammar": "root ::= x"}
    [chunk] = [chunk for chunk in chunks if isinstance(chunk, TextChunk)]
    assert chunk.logprobs[0].top == (("Hi", -0.1), ("Ho", -2.0))
