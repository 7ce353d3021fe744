"""Cancels a turn at each of its awaits, and fails each call of its store. Tests that the state is known every time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.messages import Media
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.sessions import call_pairs
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn import turn_writer as writer_module
from agent_kernel.turn.agent import TurnRequest
from agent_kernel.turn.agent_options import TurnServices
from agent_kernel.turn.turn_writer import TurnWriter
from tests.scripted import python
from tests.sessions.faulty import FaultyStore, When
from tests.turns import KEY, CancelledAt, Recorder, agent

SCRIPT: Sequence[Mapping[str, Any]] = [
    {"text": "let me see", "calls": [python("a"), python("b")]},
    {"calls": [python("c")]},
    {"text": "done"},
]
REQUEST = TurnRequest("go", media=(Media.of("image/png", bytes(20_000)),))
WHOLE = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "AGAIN_S", (0.0, 0.0))


async def assert_known(store: SessionStore, *, closed: bool = True) -> list[str]:
    """Check that every turn is closed, every call has one result, and nothing is duplicated. Return the roles."""
    turns, items = await store.everything(KEY)
    assert not closed or all(turn.state != "open" for turn in turns)
    for turn in turns:
        said = [item.message for item in items if item.turn == turn.id]
        assert call_pairs.pending_calls({}, said) == {} or turn.state == "open"
        texts = [message.text for message in said if message.role != "tool"]
        assert len(texts) == len(set(texts)) or texts.count("") == 1
    assert [item.seq for item in items] == list(range(1, len(items) + 1))
    return [item.message.role for item in items]


async def goes_on(store: SessionStore) -> None:
    """Check that the session accepts another turn, in a process that starts now."""
    next_one, *_ = agent([{"text": "still here"}], store=store)
    assert (await next_one.run("and now?")).state == "committed"
    await assert_known(store)


async def cancelled_at(path: Path, n: int) -> bool:
    """Cancel the turn at its n-th await. Return False if the turn has fewer awaits."""
    store = SqliteStore(path)
    it, *_ = agent(SCRIPT, [Recorder()], store=store)
    run = CancelledAt(it.run(REQUEST), n)
    reached = True
    try:
        result = await asyncio.create_task(run.run())
        reached = run.suspensions >= n
        assert result.state == "committed"
    except asyncio.CancelledError:
        pass
    roles = await assert_known(store)
    assert roles == WHOLE[: len(roles)] or "tool" in roles  # a call that was stopped is answered all the same
    await goes_on(store)
    await store.aclose()
    again = SqliteStore(path)
    await assert_known(again)
    await again.aclose()
    return reached


async def test_a_turn_cancelled_at_each_await_leaves_a_known_state(tmp_path: Path) -> None:
    n = 1
    while await cancelled_at(tmp_path / f"{n}.db", n):
        n += 1
    assert n >= 20


async def failing_at(n: int, when: When) -> bool:
    """Fail the n-th store call of the turn, once. Return False if the turn makes fewer calls."""
    real = MemoryStore()
    await real.create(KEY)
    faulty = FaultyStore(real, lambda number, _: when if number == n else None)
    turn_writer = TurnWriter(faulty)
    it, *_ = agent(SCRIPT, [Recorder()], store=faulty, services=TurnServices(turn_writer))
    with suppress(StoreError):  # before the turn was announced
        assert (await it.run(REQUEST)).state in ("committed", "failed")
    await turn_writer.settle()  # what the server does every 30 s
    roles = await assert_known(real)
    if len(faulty.calls) >= n and faulty.calls[n - 1].startswith("append"):
        assert roles == WHOLE
    await goes_on(real)
    await real.aclose()
    return len(faulty.calls) >= n


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_at_each_call_leaves_a_known_state(when: When) -> None:
    n = 1
    while await failing_at(n, when):
        n += 1
    assert n > 8


def _from(broken: list[int], when: When, number: int, method: str) -> When | None:
    return when if broken and number >= broken[0] else None


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_from_a_call_on_is_cleaned_up_when_it_works_again(when: When) -> None:
    for n in range(1, 12):
        real = MemoryStore()
        await real.create(KEY)
        broken = [n]
        faulty = FaultyStore(real, partial(_from, broken, when))
        turn_writer = TurnWriter(faulty)
        it, *_ = agent(SCRIPT, [Recorder()], store=faulty, services=TurnServices(turn_writer))
        with suppress(StoreError):
            await it.run(REQUEST)
        broken.clear()
        await turn_writer.settle()
        await assert_known(real)
        await goes_on(real)
        await real.aclose()
