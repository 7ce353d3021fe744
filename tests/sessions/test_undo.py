from __future__ import annotations

import pytest

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.undo import undo

KEY = SessionKey("ns", "s")


async def test_the_newest_turn_is_taken_back_whole_however_long_it_is() -> None:
    store = MemoryStore()
    await store.add_turn(Turn("t1", KEY), [user("one"), assistant("first")])
    calls = [ToolCall(f"c{n}", "python", {}) for n in range(40)]
    results = [tool_result(call, "done", "denied" if call.id == "c0" else "success") for call in calls]
    await store.add_turn(Turn("t2", KEY), [user("hidden", hidden=True), user("two"), assistant("", calls), *results])
    undone = await undo(store, KEY)
    assert undone is not None
    assert (undone.turn, undone.items, undone.prompt) == ("t2", 43, "two")
    assert undone.ran == ("python",) * 39, "what was refused did not run"
    assert [item.message.text for item in await store.latest(KEY)] == ["one", "first"]
    assert [turn.id for turn in await store.turns(KEY)] == ["t1"]
    assert await undo(store, KEY) is not None
    assert await undo(store, KEY) is None


async def test_another_branch_keeps_the_turn_and_a_running_one_is_not_touched() -> None:
    store = MemoryStore()
    await store.add_turn(Turn("t1", KEY), [user("one")])
    await store.branch(KEY)
    await undo(store, KEY)
    assert await store.latest(KEY) == []
    assert len(await store.latest(KEY, branch="main")) == 1
    await store.open_turn(Turn("t2", KEY), Owner.here())
    with pytest.raises(SessionBusy):
        await store.switch(KEY, "main")
