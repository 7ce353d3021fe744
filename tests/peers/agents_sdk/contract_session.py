"""Checks that AgentsSession behaves like the SDK's own SQLiteSession."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.memory import Session, SessionSettings
from agents.memory.session import _session_accepts_wrapper

from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from tests.peers.agents_sdk.scripts import short, stored

SIX: list[Any] = [
    {"role": role, "content": f"{what} {n}"} for n in (1, 2, 3) for role, what in (("user", "M"), ("assistant", "R"))
]
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_file", "file_id": "f1"}]},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "I see", "annotations": [{"type": "url_citation"}], "logprobs": []}
        ],
    },
    {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]},
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "mcp_approval_request", "id": "ap", "name": "n", "arguments": "{}", "server_label": "s"},
    {"type": "compaction", "id": "cmp", "encrypted_content": "abc"},
    {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "aGVsbG8="},
]


@pytest.fixture(params=["theirs", "ours"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Our session and the SDK's own: every test with this fixture must pass with both."""
    made: Any = (SQLiteSession if request.param == "theirs" else AgentsSession)("s", tmp_path / "s.db")
    yield made
    made.close()


def test_it_is_a_session_of_the_sdk_and_wants_the_context(session: AgentsSession) -> None:
    assert isinstance(session, Session)
    assert _session_accepts_wrapper(session)
    assert list(inspect.signature(session.get_items).parameters) == ["limit", "wrapper"]


async def test_a_limit_gives_the_newest_in_order(both: Any) -> None:
    await both.add_items(SIX)
    got = [short(await both.get_items(limit)) for limit in (2, 4, 10, 0)]
    assert got == [short(SIX[-2:]), short(SIX[-4:]), short(SIX), []]


async def test_items_come_back_as_they_were_given(both: Any) -> None:
    await both.add_items(ITEMS)
    assert await both.get_items() == ITEMS


async def test_pops_give_the_items_from_the_newest(both: Any) -> None:
    await both.add_items(ITEMS)
    assert [await both.pop_item() for _ in ITEMS] == ITEMS[::-1]
    assert await both.pop_item() is None
    assert await both.get_items() == []


async def test_text_of_any_language_and_sql_is_only_text(both: Any) -> None:
    texts = [
        "こんにちは",
        "🎉 ok",
        "Привет",
        "O'Reilly",
        "DROP TABLE sessions;",
        "Robert'); DROP TABLE students;--",
        "\n\t",
    ]
    items: list[Any] = [{"role": "user", "content": text} for text in texts]
    await both.add_items(items)
    assert await both.get_items() == items


async def test_sessions_in_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    one, two = (AgentsSession(name, str(tmp_path / "x.db")) for name in ("one", "two"))
    await one.add_items(SIX[:1])
    await two.add_items(SIX[:2])
    assert await two.pop_item() == SIX[1]
    await two.clear_session()
    assert (await stored(one), await stored(two)) == (["user M 1"], [])
    one.close()
    two.close()


async def test_what_is_no_json_is_refused_and_the_file_can_be_written_at_once(both: Any) -> None:
    await both.add_items(SIX[:1])
    with pytest.raises(TypeError):
        await both.add_items([SIX[1], {"role": "user", "content": object()}])
    assert await both.get_items() == SIX[:1]
    await both.add_items(SIX[1:2])
    assert await both.get_items() == SIX[:2]


async def test_a_closed_session_says_so_for_every_call(both: Any) -> None:
    await both.add_items(SIX)
    both.close()
    both.close()
    for call in (both.get_items, both.pop_item, both.clear_session, lambda: both.add_items([])):
        if isinstance(both, AgentsSession) or call is not both.get_items:
            with pytest.raises(Exception, match="closed"):
                await call()


async def test_the_default_limit_is_of_the_session_and_the_explicit_one_wins(tmp_path: Path) -> None:
    for settings in (SessionSettings(limit=2), {"limit": 2}):
        session = AgentsSession("s", tmp_path / "s.db", session_settings=settings)
        await session.clear_session()
        await session.add_items(SIX)
        assert short(await session.get_items()) == short(SIX[-2:])
        assert len(await session.get_items(5)) == 5
        session.close()


def test_settings_resolve_as_those_of_the_sdk(session: AgentsSession) -> None:
    ours = session.session_settings
    assert ours.limit is None
    assert ours.resolve(SessionSettings(limit=50)).limit == 50
    assert ours.resolve({"limit": 7}).resolve(None).limit == 7
    assert ours.limit is None
    with pytest.raises(TypeError):
        AgentsSession("s", session_settings={"limits": 1})


def test_threads_with_loops_of_their_own_lose_nothing(both: Any) -> None:
    def add(n: int) -> None:
        asyncio.run(both.add_items([{"role": "user", "content": f"{n}.{k}"} for k in range(2)]))

    threads = [threading.Thread(target=add, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [item["content"] for item in asyncio.run(both.get_items())]
    assert sorted(got) == sorted(f"{n}.{k}" for n in range(5) for k in range(2))
    assert all(got.index(f"{n}.1") == got.index(f"{n}.0") + 1 for n in range(5))


async def test_two_pops_at_once_take_one_item_each(both: Any) -> None:
    await both.add_items(SIX[:2])
    taken = await asyncio.gather(both.pop_item(), both.pop_item(), both.pop_item())
    assert sorted(item["content"] for item in taken if item) == ["M 1", "R 1"]


async def test_a_cancelled_call_is_done_once_or_not_at_all(both: Any) -> None:
    for n in range(30):
        task = asyncio.ensure_future(both.add_items([{"role": "user", "content": f"{n}"}] * 2))
        await asyncio.sleep(0.0002 * n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        got = [item["content"] for item in await both.get_items()]
        assert got.count(f"{n}") in (0, 2)
