"""Contract of AgentsSession inside the SDK's sessions that wrap another one: EncryptedSession and the compacting
session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from agents import RunConfig, Runner
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings

from agent_kernel.core.messages import ToolCall, assistant, tool_result, user
from agent_kernel.core.session import MAIN, Owner, SessionKey, Turn
from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.peers.agents_sdk.scripts import agent, said, short

KEY = SessionKey("local", "s")
SUMMARY = {"type": "compaction", "id": "cmp", "encrypted_content": "short"}
SIX: list[Any] = [{"role": role, "content": f"{role} {n}"} for n in (1, 2, 3) for role in ("user", "assistant")]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[AgentsSession]:
    made = AgentsSession("s", tmp_path / "sessions.db", session_settings={"limit": 2})
    yield made
    made.close()


def compacting(session: Any, output: list[Any], during: Any = None) -> OpenAIResponsesCompactionSession:
    async def compact(**_: Any) -> Any:
        if during is not None:
            await during()
        return SimpleNamespace(output=output)

    client = MagicMock()
    client.responses.compact = AsyncMock(side_effect=compact)
    return OpenAIResponsesCompactionSession(
        "s", session, client=client, compaction_mode="input", should_trigger_compaction=lambda _: True
    )


def compact_calls(session: OpenAIResponsesCompactionSession) -> list[Any]:
    return [call.kwargs["input"] for call in session.client.responses.compact.await_args_list]


@pytest.mark.parametrize("settings", [None, {"limit": 2}, SessionSettings(limit=2)])
async def test_an_encrypted_session_keeps_and_gives_back(tmp_path: Path, settings: Any) -> None:
    inner = AgentsSession("s", tmp_path / "s.db", session_settings=settings)
    assert isinstance(inner.session_settings, SessionSettings)
    session = EncryptedSession("s", inner, "a key that nobody guesses")
    await session.add_items(SIX)
    assert await session.get_items(10) == SIX
    assert await session.get_items() == (SIX if settings is None else SIX[-2:])
    assert "user 1" not in str(await inner.get_items(10))
    assert await session.pop_item() == SIX[-1]
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == SIX[-2:-1]
    await session.clear_session()
    assert await session.get_items() == []
    inner.close()


async def test_compaction_sees_what_a_limit_hides_and_replaces_only_what_the_model_saw(limited: AgentsSession) -> None:
    await limited.add_items(SIX)
    session = compacting(limited, [SUMMARY])
    await Runner.run(agent(*said("done"))[0], "go on", session=session)
    [sent] = compact_calls(session)
    assert short(sent) == ["user user 3", "assistant assistant 3", "user go on", "assistant done"]
    assert await limited.get_items(100) == [*SIX[:4], SUMMARY]


async def test_what_was_replaced_stays_as_an_earlier_branch(limited: AgentsSession) -> None:
    session = compacting(limited, [SUMMARY])
    for prompt in ("one", "two"):
        await Runner.run(agent(*said("done"))[0], prompt, session=session, run_config=RunConfig())
    store: Any = limited._holder.store
    texts = {
        branch.name: [item.message.text for item in await store.latest(KEY, branch=branch.name)]
        for branch in await store.branches(KEY)
    }
    assert texts[MAIN] == ["one", "done"]
    assert len(texts) == 3
    assert await limited.get_items(100) == [SUMMARY]
    assert [fault for fault in await store.verify() if fault.session == "s"] == []


@pytest.mark.parametrize("change", ["add", "pop", "busy", "switch"])
async def test_a_history_that_changed_meanwhile_is_left_as_it_is(limited: AgentsSession, change: str) -> None:
    store: Any = limited._holder.store
    after: list[Any] = []

    async def during() -> None:
        if change == "add":
            await limited.add_items([{"role": "user", "content": "newer"}])
        elif change == "pop":
            await limited.pop_item()
        elif change == "switch":
            await store.branch(KEY, before=(await store.turns(KEY))[-1].id)
        else:
            await store.open_turn(Turn("ours", KEY), Owner.here())
        after.append(await limited.get_items(100))

    await limited.add_items(SIX)
    await Runner.run(agent(*said("done"))[0], "go on", session=compacting(limited, [SUMMARY], during))
    assert await limited.get_items(100) == after[0]


async def test_a_compaction_that_is_cancelled_is_done_or_not(limited: AgentsSession) -> None:
    for n in range(8):
        await limited.clear_session()
        await limited.add_items(SIX)
        reached = asyncio.Event()

        async def during(reached: asyncio.Event = reached) -> None:
            reached.set()

        session = compacting(limited, [SUMMARY], during)
        work = asyncio.ensure_future(Runner.run(agent(*said("done"))[0], "go on", session=session))
        await reached.wait()
        await asyncio.sleep(0.002 * n)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        whole = short(await limited.get_items(100))
        assert whole[:4] == short(SIX[:4])
        assert whole[4:] in ([*short(SIX[4:]), "user go on", "assistant done"], short([SUMMARY]))
        await limited.add_items(SIX[:1])


async def test_pairs_of_our_own_agent_are_replaced_whole(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    calls = [ToolCall("a", "f", {}), ToolCall("b", "f", {})]
    results = [tool_result(call, call.id, "success") for call in calls]
    await store.add_turn(Turn("t1", KEY), [user("first"), assistant("a1")])
    await store.add_turn(Turn("t2", KEY), [user("go"), assistant("both", calls), *results, assistant("end")])
    session = AgentsSession("s", store)
    forms = await session.get_items()
    assert len(forms) == 9
    for limit in range(1, 10):
        snapshot = await session._get_compaction_snapshot(limit)
        assert (snapshot.items, snapshot.complete) == (forms[-limit:], limit == 9)
    snapshot = await session._get_compaction_snapshot(6)
    assert not await snapshot.replace_suffix(6, [SUMMARY])
    results_alone = await session._get_compaction_snapshot(2)
    assert not await results_alone.replace_suffix(0, [SUMMARY])
    assert await snapshot.replace_suffix(1, [SUMMARY])
    assert short(await session.get_items()) == [*short(forms[:4]), *short([SUMMARY])]
    assert await (await session._get_compaction_snapshot(9)).replace_suffix(0, [])
    assert await session.get_items() == []
    await store.aclose()
