import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import SessionBusy, StoreFull
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, Usage, assistant, user
from agent_kernel.core.session import Owner, Turn
from agent_kernel.core.shielded_await import await_uncancelled
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.turn_writer import TurnWriter
from tests.turns import KEY
from tests.waiting import until

OWNER = """
import dataclasses, json
from agent_kernel.core.session import Owner
print(json.dumps(dataclasses.asdict(Owner.here())))
"""


class FullStore(MemoryStore):
    """A store whose disk is full while ``full`` is True."""

    full = False

    async def close_turn(
        self,
        turn: Turn,
        owner: Owner,
        state: TurnState,
        reason: str = "",
        usage: Usage | None = None,
        *,
        record: Mapping[str, Any] | None = None,
    ) -> bool:
        if self.full:
            raise StoreFull("no space left")
        return await super().close_turn(turn, owner, state, reason, usage, record=record)


async def test_a_write_that_was_begun_is_ended_before_the_cancellation_goes_on() -> None:
    done: list[str] = []

    async def write() -> None:
        await asyncio.sleep(0.05)
        done.append("written")

    task = asyncio.create_task(await_uncancelled(write()))
    await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["written"]


async def test_items_are_numbered_on_from_the_head() -> None:
    store = MemoryStore()
    await store.create(KEY)
    turn_writer = TurnWriter(store)
    opened = await turn_writer.begin(Turn("t1", KEY))
    said: Sequence[Message] = [user("hi"), assistant("hello")]
    assert [item.seq for item in await opened.append(said)] == [1, 2]
    assert opened.head == 2
    await opened.close("committed", "", Usage())
    assert (await turn_writer.begin(Turn("t2", KEY))).head == 2


async def test_an_ending_that_could_not_be_written_is_written_before_the_next_turn() -> None:
    store = FullStore()
    await store.create(KEY)
    turn_writer = TurnWriter(store)
    opened = await turn_writer.begin(Turn("t1", KEY))
    store.full = True
    assert isinstance(await opened.close("committed", "", Usage()), StoreFull)
    with pytest.raises(SessionBusy):
        await turn_writer.begin(Turn("t2", KEY))
    store.full = False
    await turn_writer.begin(Turn("t2", KEY))
    assert [(turn.id, turn.state) for turn in await store.turns(KEY)] == [("t1", "committed"), ("t2", "open")]


async def test_a_lease_is_kept_while_the_turn_runs() -> None:
    beats = 0

    class Counting(MemoryStore):
        async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
            nonlocal beats
            beats += 1
            return await super().heartbeat(turn, owner)

    store = Counting()
    await store.create(KEY)
    opened = await TurnWriter(store, heartbeat_s=0.01).begin(Turn("t1", KEY))
    async with opened, asyncio.timeout(20):
        await until(lambda: beats >= 2)
    seen = beats
    await asyncio.sleep(0.05)
    assert beats <= seen + 1


async def test_a_session_that_a_dead_process_left_busy_is_free_at_once() -> None:
    store = MemoryStore()
    await store.create(KEY)
    gone = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=True)
    fields = json.loads(gone.stdout)
    await store.open_turn(Turn("t1", KEY), Owner(**fields))
    await TurnWriter(store).begin(Turn("t2", KEY))
    assert [(turn.id, turn.state) for turn in await store.turns(KEY)] == [("t1", "interrupted"), ("t2", "open")]
