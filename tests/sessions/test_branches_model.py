"""Tests random trees: turns, edits, branches, pops and rewinds of a session change it as they change plain lists of
items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.session import Branch, Owner, SessionKey, Turn
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.plain_store import PlainStore
from tests.sessions.talk import KEY, PNG, Clock, calls, result

COPY = SessionKey("local", "copy")
OWNER = Owner("one", 1)
ROUNDS: list[list[Message]] = [
    [],
    [user("q")],
    [user("q", [PNG]), assistant("a")],
    [user("q"), calls("a", "b"), result("b"), result("a"), assistant("a")],
]
Step: TypeAlias = tuple[str, int]
often = ["say", "edit", "switch", "pop"]
steps: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from([*often, *often, "branch", "branch", "drop", "rewind", "fork"]), st.integers(0, 7)
)
BEGINNING: list[Step] = [("say", 1), ("say", 2), ("branch", 0), ("say", 3), ("edit", 1)]


class Pair:
    """A real store and the model; each operation is applied to both."""

    def __init__(self) -> None:
        clock = Clock()
        self.real, self.plain = MemoryStore(clock=clock), PlainStore(clock=clock)
        self.count = 0

    async def both(self, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        real, plain = await _answer(call(self.real)), await _answer(call(self.plain))
        assert real == plain
        return plain

    async def take(self, what: str, n: int) -> None:
        turns, branches = await self.plain.turns(KEY), await self.plain.branches(KEY)
        before = turns[n % len(turns)].id if turns else None
        name = branches[n % len(branches)].name
        match what:
            case "say":
                await self.say(n)
            case "edit":
                await self.both(lambda store: store.branch(KEY, before=before))
                await self.say(n)
            case "branch":
                await self.both(lambda store: store.branch(KEY))
            case "switch":
                await self.both(lambda store: store.switch(KEY, name))
            case "drop":
                await self.both(lambda store: store.drop_branch(KEY, name))
            case "pop":
                await self.both(lambda store: store.pop(KEY))
            case "rewind":
                tail = (await self.plain.latest(KEY))[-n:] if n else []
                await self.both(lambda store: store.rewind(KEY, tail))
            case "fork":
                await self.both(lambda store: store.delete(COPY))
                await self.both(lambda store: store.fork(KEY, COPY, n if n < 4 else None))

    async def say(self, n: int) -> None:
        self.count += 1
        turn = Turn(f"t{self.count}", KEY, opened=0.0)
        head = (await self.both(lambda store: store.open_turn(turn, OWNER))).since
        await self.both(lambda store: store.append(turn, OWNER, ROUNDS[n % len(ROUNDS)], head))
        state = "cancelled" if n == 7 else "committed"
        await self.both(lambda store: store.close_turn(turn, OWNER, state))

    async def compare(self) -> None:
        turns, _ = await self.both(lambda store: store.everything(KEY))
        for key in (KEY, COPY):
            await self.both(lambda store, key=key: store.blob(key, PNG.hash))  # type: ignore[misc]  # bound per loop
            await self.both(lambda store, key=key: store.latest(key))  # type: ignore[misc]
            for branch in await self.both(lambda store, key=key: store.branches(key)):  # type: ignore[misc]
                for call in ("latest", "turns"):
                    await self.both(lambda store, k=key, c=call, b=branch.name: getattr(store, c)(k, branch=b))  # type: ignore[misc]
        for turn in turns:
            await self.both(lambda store, id=turn.id: store.siblings(KEY, id))  # type: ignore[misc]


async def _answer(call: Coroutine[Any, Any, Any]) -> Any:
    """Return the result without how much a branch shares with others, which the model does not compute after a pop."""
    try:
        found = await call
    except AgentKernelError as error:
        return f"{error.code}: {error}"
    if isinstance(found, Branch):
        return replace(found, since=0)
    return [replace(each, since=0) if isinstance(each, Branch) else each for each in found] if is_list(found) else found


def is_list(found: Any) -> bool:
    return isinstance(found, list)


@settings(max_examples=60)
@given(st.lists(steps, min_size=8, max_size=16))
def test_a_tree_of_turns_is_a_list_of_items_for_every_branch(taken: list[Step]) -> None:
    async def run() -> None:
        pair = Pair()
        await pair.both(lambda store: store.create(KEY))
        for what, n in BEGINNING + taken:
            await pair.take(what, n)
            await pair.compare()
        await pair.real.aclose()

    asyncio.run(run())
