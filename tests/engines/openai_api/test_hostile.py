"""Tests malicious servers, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.openai_api import endpoint_client, retry
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.talk import PYTHON, ask, asked_of, error_of, text_of
from tests.engines.openai_api.wire_server import HELLO, WHOLE, WireServer, call, delta, raw_stream, sse, status, usage


async def test_a_redirect_is_not_followed_and_the_key_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    async with (
        WireServer([HELLO]) as thief,
        WireServer([status(307, {}, Location=f"{thief.url}/chat/completions")]) as server,
    ):
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env="MY_KEY", context_length=9))
        with pytest.raises(EngineError, match="does not follow redirects"):
            await ask(engine)
        await engine.aclose()
    assert thief.asked == []
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"data: " + b"0" * 10_000_000)
    async with WireServer([raw_stream(bomb, Content_Encoding="gzip")]) as server:
        with pytest.raises(EngineError, match="compressed"):
            await asked_of(server)
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = raw_stream(b"data: ", *[b"x" * 65536] * 400)
    async with WireServer([endless]) as server:
        with pytest.raises(EngineError, match="8 MiB"):
            await asked_of(server)
        await asyncio.wait_for(server.left.wait(), 30)


async def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_client, "MAX_ANSWER", 20_000)
    async with WireServer([sse(*[delta(content="word ")] * 2000)]) as server:
        with pytest.raises(EngineError, match="the rest was not read"):
            await asked_of(server)


async def test_calls_without_an_end_are_given_up() -> None:
    many = [call(index, call_id=f"i{index}", **WHOLE) for index in range(200)]
    async with WireServer([sse(*many, delta("tool_calls"))]) as server:
        with pytest.raises(EngineError, match="128 calls"):
            await asked_of(server, tools=(PYTHON,))


async def test_a_refusal_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_client, "REFUSAL_S", 0.2)
    error = await error_of(status(400, b"x" * 10_000_000))
    assert len(error.message) < 1000
    error = await error_of(status(400, b"no\x1b[31m\x00\nway", Content_Length="100"))
    assert error.message.endswith("HTTP 400: no [31m way")


@pytest.mark.parametrize("junk", [b"data: {\n\n", b"data: []\n\n", b"<html>\n\ndata: nonsense\n\n"])
async def test_junk_is_an_error(junk: bytes) -> None:
    assert "not a JSON object" in (await error_of(raw_stream(junk))).message


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5, "tool_calls": "x", "reasoning": []}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"function": "x"}, {"index": "y", "id": 5}]}}]},
        {"usage": {"prompt_tokens_details": 4}},
    ],
)
async def test_nonsense_in_an_event_breaks_nothing(event: Any) -> None:
    async with WireServer([sse(event, delta(content="x"), delta("stop"), usage(1, 1))]) as server:
        chunks = await asked_of(server, tools=(PYTHON,))
    assert text_of(chunks) == "x"


async def test_an_answer_that_stays_empty_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)
    assert "sent an empty answer" in (await error_of(sse(done=False))).message
