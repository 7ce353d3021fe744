"""Tests API keys: found by name, sent in one header, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import keyring
import pytest

from agent_kernel.core.errors import AgentKernelError, EngineError
from agent_kernel.core.session import SessionKey
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn.agent import Agent
from tests.engines.conftest import Drawer
from tests.engines.openai_api.talk import ask, text_of
from tests.engines.openai_api.wire_server import HELLO, Reply, WireServer, delta, dropped, sse, status

SECRET = "sk-do-not-tell-anybody"


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("A_KEY", f" {SECRET}\n")
    return "A_KEY"


async def test_a_key_is_sent_as_its_header(key: str) -> None:
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env=key, context_length=9))
        assert text_of(await ask(engine)) == "Hello."
        await engine.aclose()
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_without_a_key_there_is_no_header_whatever_the_environment_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, SECRET)
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m"))
        await ask(engine)
        await engine.aclose()
    assert SECRET not in str(server.asked)


async def test_a_new_key_is_used_at_once(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env=key, context_length=9))
        await ask(engine)
        monkeypatch.setenv(key, "sk-new")
        await ask(engine)
        await engine.aclose()
    assert server.asked[1].headers["authorization"] == "Bearer sk-new"


async def test_a_key_can_lie_in_the_keyring(drawer: Drawer) -> None:
    keyring.set_password("agent-kernel", "me", SECRET)
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_keyring="agent-kernel/me", context_length=9))
        await ask(engine)
        await engine.aclose()
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"),
        ({"api_key_keyring": "agent-kernel/me"}, "keyring set agent-kernel me"),
    ],
)
async def test_a_key_that_is_not_there_says_where_to_put_it(setting: Any, told: str, drawer: Drawer) -> None:
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", **setting))
        with pytest.raises(EngineError) as caught:
            await ask(engine)
        await engine.aclose()
    assert told in caught.value.hint
    assert server.asked == []


@pytest.mark.parametrize("value", ["sk\r\nX-Evil: 1", "sk-ключ", "sk\x00"])
async def test_a_key_that_no_header_can_carry_is_refused_without_being_repeated(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"A_KEY": value})
    monkeypatch.setattr("agent_kernel.engines.openai_api.api_keys.key_of.__defaults__", ({"A_KEY": value},))
    async with WireServer([HELLO]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env="A_KEY", context_length=9))
        with pytest.raises(EngineError, match="A_KEY") as caught:
            await ask(engine)
        await engine.aclose()
    assert value not in str(caught.value)
    assert server.asked == []


ECHOES: list[Reply] = [
    status(401, {"error": {"message": f"Incorrect API key provided: {SECRET}", "code": SECRET}}),
    status(400, SECRET.encode()),
    status(404, {"error": {"message": f"no model for {SECRET}"}}),
    sse(delta(content="x"), {"error": {"message": f"{SECRET} is over its limit"}}),
    dropped,
    sse(delta(content="Hello."), delta("stop")),
]


async def test_a_redirect_that_repeats_the_key_is_told_without_it(key: str) -> None:
    async with WireServer([status(302, {}, Location=f"http://{SECRET}.example/{SECRET}")]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env=key, context_length=9))
        with pytest.raises(EngineError, match="does not follow redirects") as caught:
            await ask(engine)
        await engine.aclose()
    assert SECRET not in str(caught.value.to_json())


@pytest.mark.parametrize("reply", ECHOES)
async def test_no_output_of_a_turn_holds_the_key(
    reply: Reply, key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Events, the stored session, errors with their causes, logs at their most talkative, and what can be printed."""
    caplog.set_level(logging.DEBUG)
    store = SqliteStore(tmp_path / "sessions.db")
    async with WireServer([reply], models=[{"id": "m"}]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", api_key_env=key, tries=1))
        agent = Agent(store, engine, SessionKey("local", "s"))
        seen = [json.dumps(event.to_json()) async for event in agent.stream("Hello")]
        error = (await agent.run("Again")).error
        printed = [repr(engine), repr(engine.info()), str(pickle.dumps(engine.info()))]
        await engine.aclose()
        assert f"Bearer {SECRET}" in server.asked[-1].headers["authorization"]
    await store.aclose()
    told = "".join(traceback.format_exception(error)) if isinstance(error, AgentKernelError) else ""
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert seen
    for output in (*seen, *printed, told, caplog.text, stored.decode("latin-1")):
        assert SECRET not in output
    await asyncio.sleep(0)


async def test_a_server_that_wants_a_key_where_none_is_set_does_not_refuse_one() -> None:
    async with WireServer([status(401, {"error": {"message": "No key."}})]) as server:
        engine = OpenAIEngine(Endpoint(server.url, "m", context_length=9))
        with pytest.raises(EngineError, match=r"asks for a key \(HTTP 401\)"):
            await ask(engine)
        await engine.aclose()
