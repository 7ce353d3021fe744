"""Whatever was done to a session's tree, both of our formats bring it back as it was."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agent_kernel.errors import AgentKernelError
from agent_kernel.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.sessions.exchange import export_session, import_session
from agent_kernel.sessions.memory import MemoryStore
from agent_kernel.sessions.model import Owner, SessionKey, Turn
from agent_kernel.sessions.store import SessionStore
from tests.sessions.talk import KEY

STEPS = 40
CALL = ToolCall("call-0", "python", {"code": "1"})


class Gardener:
    """Does something to the tree; what the store refuses changes nothing."""

    def __init__(self, store: SessionStore, owner: Owner, seed: int) -> None:
        self._store = store
        self._owner = owner
        self._chance = random.Random(seed)
        self._count = 0

    async def step(self) -> None:
        self._count += 1
        deeds: list[Callable[[], Awaitable[object]]] = [
            self._turn,
            self._turn,
            self._branch,
            self._switch,
            lambda: self._store.pop(KEY),
            self._drop,
            self._ends_early,
            self._behind,
        ]
        with contextlib.suppress(AgentKernelError):
            await self._chance.choice(deeds)()

    async def _turn(self) -> None:
        picture = Media.of("image/png", bytes([self._count]) * self._chance.choice([3, 40_000]))
        said = [user(f"said {self._count}", [picture]), assistant("", [CALL]), tool_result(CALL, "1", "success")]
        answer = [assistant("one")] if self._chance.random() < 0.5 else []
        await self._store.add_turn(Turn(f"t{self._count}", KEY), [*said, *answer])

    async def _branch(self) -> None:
        turns = [turn.id for turn in await self._store.turns(KEY)]
        await self._store.branch(KEY, before=self._chance.choice([None, *turns]))

    async def _switch(self) -> None:
        await self._store.switch(KEY, self._chance.choice(await self._store.branches(KEY)).name)

    async def _drop(self) -> None:
        await self._store.drop_branch(KEY, self._chance.choice(await self._store.branches(KEY)).name)

    async def _ends_early(self) -> None:
        turn = await self._store.open_turn(Turn(f"t{self._count}", KEY), self._owner)
        if self._chance.random() < 0.5:
            await self._store.append(turn, self._owner, [user("wrong")], await self._head())
        await self._store.close_turn(turn, self._owner, self._chance.choice(["failed", "cancelled"]))

    async def _behind(self) -> None:
        _, items = await self._store.everything(KEY)
        turn = await self._store.open_turn(Turn(f"t{self._count}", KEY), self._owner)
        try:
            behind = self._chance.choice([0, *(item.seq for item in items if not item.message.calls)])
            await self._store.append_at(turn, self._owner, [user("edited")], await self._head(), behind=behind)
        finally:
            await self._store.close_turn(turn, self._owner, "committed")

    async def _head(self) -> int:
        session = await self._store.info(KEY)
        assert session is not None
        return session.head


@pytest.fixture
async def memory() -> AsyncIterator[SessionStore]:
    made = MemoryStore()
    yield made
    await made.aclose()


@pytest.mark.parametrize("seed", range(12))
async def test_a_tree_that_grew_at_random_comes_back_branch_by_branch(
    memory: SessionStore, owner: Owner, seed: int
) -> None:
    await memory.create(KEY)
    gardener = Gardener(memory, owner, seed)
    for _ in range(STEPS):
        await gardener.step()
    whole = await memory.whole(KEY)
    assert whole is not None
    for format in ("agent-kernel", "jsonl"):
        there = SessionKey(format, KEY.id)
        document = (await export_session(memory, KEY, format)).document
        await import_session(memory, format, document, id=KEY.id, trusted=True)
        assert (await export_session(memory, there, format)).document == document
        assert await memory.branches(there) == await memory.branches(KEY)
        for branch in await memory.branches(KEY):
            items, turns = await memory.latest(KEY, branch=branch.name), await memory.turns(KEY, branch=branch.name)
            assert await memory.latest(there, branch=branch.name) == items
            shown = whole.shown(branch.name)
            assert ([turn.id for turn in shown[0]], list(shown[1])) == ([turn.id for turn in turns], items)
