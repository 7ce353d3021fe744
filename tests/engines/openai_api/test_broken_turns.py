"""Tests turns whose model server closes the connection: before the first token, in the middle of the answer, and after
a call has run."""

from __future__ import annotations

import pytest

from agent_kernel.engines.openai_api import retry
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent
from tests.engines.openai_api.wire_server import HELLO, Reply, WireServer, call, delta, dropped, sse
from tests.turns import KEY, Recorder, stored

ROLE = delta(role="assistant", content="")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)


def agent_at(server: WireServer, *tools: Recorder) -> tuple[Agent, MemoryStore, OpenAIEngine]:
    store, engine = MemoryStore(), OpenAIEngine(Endpoint(server.url, "m", context_length=8192))
    return Agent(store, engine, KEY, tools, gate=Gate(Approvals(), answers=frozenset("*"))), store, engine


@pytest.mark.parametrize("lost", [dropped, sse(ROLE, done=False, cut=True), sse(ROLE, done=False)])
async def test_a_server_lost_before_the_first_token_costs_nothing_but_time(lost: Reply) -> None:
    async with WireServer([lost, HELLO]) as server:
        agent, store, engine = agent_at(server)
        result = await agent.run("hi")
        assert (result.state, result.text) == ("committed", "Hello.")
        assert [message.text for message in await stored(store)] == ["hi", "Hello."]
        await engine.aclose()
    assert len(server.chats) == 2


async def test_a_server_lost_in_the_middle_is_named_and_the_text_so_far_is_kept() -> None:
    async with WireServer([sse(ROLE, delta(content="The first half"), done=False, cut=True), HELLO]) as server:
        agent, store, engine = agent_at(server)
        result = await agent.run("hi")
        assert result.state == "failed"
        assert result.error is not None
        assert result.error.message == f"The connection to {server.host} was lost in the middle of the answer."
        assert len(server.chats) == 1
        assert [(message.text, message.status) for message in await stored(store)] == [
            ("hi", None),
            ("The first half", "interrupted"),
        ]
        assert (await agent.run("hi")).text == "Hello."
        await engine.aclose()


async def test_a_turn_goes_on_when_its_answer_is_continued_and_a_half_call_runs_once() -> None:
    half = call(0, call_id="a", name="python", arguments='{"code": "ma')
    calls = sse(call(0, call_id="b", name="python", arguments='{"code": "made"}'), delta("tool_calls"))
    replies = [
        sse(ROLE, delta(content="I look.\n"), half, 0.05, done=False, cut=True),
        calls,
        sse(ROLE, delta(content="The first half"), 0.05, done=False, cut=True),
        sse(ROLE, delta(content=" and the second."), delta("stop")),
    ]
    async with WireServer(replies, models=[{"id": "m", "owned_by": "vllm"}]) as server:
        tool = Recorder()
        agent, store, engine = agent_at(server, tool)
        result = await agent.run("hi")
        assert (result.state, result.text, tool.ran) == (
            "committed",
            "The first half and the second.",
            ["made"],
        )
        texts = [message.text for message in await stored(store) if message.role == "assistant"]
        assert texts == ["I look.\n", "The first half and the second."]
        await engine.aclose()
    assert len(server.chats) == 4


async def test_a_call_that_ran_before_the_server_was_lost_does_not_run_again() -> None:
    calls = sse(call(0, call_id="a", name="python", arguments='{"code": "made"}'), delta("tool_calls"))
    async with WireServer([calls, sse(ROLE, done=False, cut=True), HELLO]) as server:
        tool = Recorder()
        agent, _, engine = agent_at(server, tool)
        result = await agent.run("go")
        assert (result.state, result.text, tool.ran) == ("committed", "Hello.", ["made"])
        await engine.aclose()
    assert len(server.chats) == 3
