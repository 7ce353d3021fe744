"""Tests that random sequences of operations give the same answers, errors and contents with every store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Media, Message, Usage, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import LEASE_S, Branch, Owner, SessionKey, Turn
from agent_kernel.sessions import call_pairs
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.plain_store import PlainStore
from tests.sessions.strategies import rounds
from tests.sessions.talk import Clock

KEYS = [SessionKey("a", "b:c"), SessionKey("a", "c"), SessionKey("a:b", "c")]
"""Two that may share media, and one whose name could be taken for another's."""
OWNERS = [Owner(name, 1, boot="another-boot", machine="another-machine") for name in ("one", "two")]
PATHS = ["a", "a/b", "a/bc", "a/b/c.ipynb", "z"]
ROOTS = ["/r", "/r2"]
PICTURES = [Media.of("image/png", bytes([n]) * 10) for n in range(3)]

keys, owners = st.sampled_from(KEYS), st.sampled_from(OWNERS)
paths, roots = st.sampled_from(PATHS), st.sampled_from(ROOTS)
limits = st.sampled_from([None, -1, 0, 1, 2, 3, 5])
said = st.lists(rounds(st.sampled_from(PICTURES)), min_size=1, max_size=3)
states = st.sampled_from(["committed", "cancelled", "failed", "interrupted"])


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.sqlite = self.open_store()
        self.memory = PlainStore(clock=self.clock)
        self.owners: dict[SessionKey, Owner] = {}
        self.count = 0
        for key in KEYS:
            self.both(lambda store, key=key: store.create(key))  # type: ignore[misc]  # bound per loop

    def open_store(self) -> Any:
        return SqliteStore(Path(self.folder.name) / "s.db", clock=self.clock)

    def teardown(self) -> None:
        self.runner.run(self.sqlite.aclose())
        self.runner.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Return the answer that both stores give; an error counts as an answer."""
        sqlite, memory = self.runner.run(_answer(call, self.sqlite)), self.runner.run(_answer(call, self.memory))
        assert sqlite == memory
        return sqlite

    # What people do: most sequences of these succeed.

    @rule(key=keys, owner=owners, batches=said, state=states)
    def a_whole_turn(self, key: SessionKey, owner: Owner, batches: list[list[Message]], state: Any) -> None:
        self.open_turn(key, owner, fresh=True)
        self.append(key, batches)
        self.close_turn(key, state)

    @rule(key=keys, owner=owners, fresh=st.sampled_from([True, True, False]))
    def open_turn(self, key: SessionKey, owner: Owner, fresh: bool) -> None:
        self.both(lambda store: store.create(key, "again"))
        self.count += fresh
        turn = Turn(f"t{self.count}", key, cell="c", opened=self.clock())
        if not isinstance(self.both(lambda store: store.open_turn(turn, owner)), str):
            self.owners[key] = owner

    @rule(key=keys, batches=said)
    def append(self, key: SessionKey, batches: list[list[Message]]) -> None:
        turn, head = self.current(key)
        for batch in batches:
            items = self.runner.run(self.memory.latest(key))
            asked = call_pairs.pending_calls({}, [item.message for item in items if item.turn == turn.id])
            answered = [*call_pairs.interrupted_results(asked, "ok"), *batch]
            items = self.both(lambda store, now=head, all=answered: store.append(turn, self.owner(key), all, now))  # type: ignore[misc]  # bound per loop
            head += 0 if isinstance(items, str) else len(items)

    @rule(key=keys, state=states)
    def close_turn(self, key: SessionKey, state: Any) -> None:
        turn, _ = self.current(key)
        self.both(lambda store: store.close_turn(turn, self.owner(key), state, "why", Usage(1)))

    @rule(key=keys)
    def heartbeat(self, key: SessionKey) -> None:
        turn, _ = self.current(key)
        self.both(lambda store: store.heartbeat(turn, self.owner(key)))

    @rule(key=keys, title=st.text(max_size=3))
    def rename(self, key: SessionKey, title: str) -> None:
        self.both(lambda store: store.rename(key, title))

    @rule(key=keys, how=st.sampled_from(["clear", "delete"]))
    def remove(self, key: SessionKey, how: str) -> None:
        self.both(lambda store: getattr(store, how)(key))

    @rule(key=keys, which=st.integers(0, 5), name=st.sampled_from(["", "", "", "x", "main"]))
    def branch(self, key: SessionKey, which: int, name: str) -> None:
        """Branch before one of the newest turns of the current branch, or with all turns."""
        turns = self.runner.run(self.memory.turns(key, 5))
        before = turns[-which].id if 0 < which <= len(turns) else None
        self.both(lambda store: _shape(store.branch(key, before=before, name=name)))

    @rule(key=keys, which=st.integers(0, 5), how=st.sampled_from(["switch", "switch", "drop_branch"]))
    def choose_a_branch(self, key: SessionKey, which: int, how: str) -> None:
        names = [branch.name for branch in self.runner.run(self.memory.branches(key))] or ["nowhere"]
        self.both(lambda store: _shape(getattr(store, how)(key, names[which % len(names)])))

    @rule(key=keys, times=st.integers(1, 4))
    def pop(self, key: SessionKey, times: int) -> None:
        for _ in range(times):
            self.both(lambda store: store.pop(key))

    @rule(key=keys, count=st.integers(1, 5), whole=st.booleans())
    def rewind(self, key: SessionKey, count: int, whole: bool) -> None:
        _, items = self.runner.run(self.memory.everything(key))
        newest = self.runner.run(self.memory.latest(key, count)) if whole else items[-count:]
        self.both(lambda store: store.rewind(key, newest))

    @rule(key=keys, into=keys, count=st.sampled_from([None, 0, 1, 2, -1]))
    def fork(self, key: SessionKey, into: SessionKey, count: int | None) -> None:
        self.both(lambda store: store.fork(key, into, count))

    @rule(key=keys, root=roots, path=paths)
    def bind(self, key: SessionKey, root: str, path: str) -> None:
        self.both(lambda store: store.bind(key.namespace, root, path, key.id))

    @rule(root=roots, old=paths, new=paths)
    def move(self, root: str, old: str, new: str) -> None:
        self.both(lambda store: store.move(root, old, new))

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def wait_and_recover(self, seconds: float) -> None:
        self.clock.now += seconds
        self.both(_sorted_recovery)

    # What goes wrong.

    @rule(key=keys, owner=owners, batches=said, behind=st.sampled_from([0, 1]))
    def append_anything(self, key: SessionKey, owner: Owner, batches: list[list[Message]], behind: int) -> None:
        turn, head = self.current(key)
        anything = [message for batch in batches for message in batch]
        self.both(lambda store: store.append(turn, owner, anything, head - behind))

    @rule(key=keys, owner=owners, state=st.sampled_from(["open", "committed"]))
    def close_anybodys(self, key: SessionKey, owner: Owner, state: Any) -> None:
        turn, _ = self.current(key)
        self.both(lambda store: store.close_turn(turn, owner, state))

    @rule(key=keys, picture=st.sampled_from(PICTURES))
    def name_a_picture(self, key: SessionKey, picture: Media) -> None:
        turn, head = self.current(key)
        named = replace(picture, data=None)
        self.both(lambda store: store.append(turn, self.owner(key), [user("that one", [named])], head))

    # What must hold after each step.

    @rule(key=keys, limit=limits, failed=st.booleans())
    def read(self, key: SessionKey, limit: int | None, failed: bool) -> None:
        self.both(lambda store: store.latest(key, limit, failed=failed))
        self.both(lambda store: store.turns(key, limit))
        self.both(lambda store: store.list(key.namespace, limit))

    @invariant()
    def the_stores_are_equal(self) -> None:
        self.both(_everything)

    @invariant()
    def no_closed_turn_has_half_a_pair(self) -> None:
        for key in KEYS:
            turns, items = self.runner.run(self.sqlite.everything(key))
            for turn in turns:
                waiting = call_pairs.pending_calls({}, [item.message for item in items if item.turn == turn.id])
                assert not waiting or turn.state == "open"

    def owner(self, key: SessionKey) -> Owner:
        return self.owners.get(key, OWNERS[0])

    def current(self, key: SessionKey) -> tuple[Turn, int]:
        """Return the session's newest turn, or a turn that was never opened, and the session's head."""
        turns = self.runner.run(self.memory.turns(key, 1))
        session = self.runner.run(self.memory.info(key))
        return turns[0] if turns else Turn("nobody-opened-it", key), session.head if session else 0


async def _everything(store: SessionStore) -> list[object]:
    found: list[object] = [await store.list("a"), await store.list("a:b")]
    for key in KEYS:
        found += [await store.info(key), await store.turns(key)]
        found += [await store.latest(key, limit, failed=failed) for limit in (None, 2, 3) for failed in (True, False)]
        found += [await store.blob(key, picture.hash) for picture in PICTURES]
        found += [await store.paths(root, key) for root in ROOTS]
        turns, items = await store.everything(key)
        found += [turns, items, *[await store.siblings(key, turn.id) for turn in turns[-4:]]]
        for branch in await store.branches(key):
            found += [await _shape(_is(branch)), await store.latest(key, branch=branch.name)]
            found += [await store.turns(key, 2, branch=branch.name)]
    return found


async def _shape(made: Awaitable[Branch | None]) -> Branch | None:
    """Return the branch without how much it shares, which after a pop depends on other branches."""
    branch = await made
    return replace(branch, since=0) if branch else None


async def _is(branch: Branch) -> Branch:
    return branch


async def _answer(call: Callable[[Any], Coroutine[Any, Any, Any]], store: SessionStore | PlainStore) -> Any:
    try:
        return await call(store)
    except AgentKernelError as error:
        return f"{error.code}: {error}"


async def _sorted_recovery(store: SessionStore) -> list[Turn]:
    """Recover and sort the closed turns, because their order is not part of the contract."""
    return sorted(await store.recover(), key=lambda turn: (turn.key.namespace, turn.key.id))


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
