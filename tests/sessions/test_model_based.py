"""Random sequences of operations give the same answers, errors and contents from every store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_kernel.errors import AgentKernelError
from agent_kernel.messages import Message, Usage
from agent_kernel.protocols import SessionStore
from agent_kernel.sessions import pairs
from agent_kernel.sessions.memory import MemoryStore
from agent_kernel.sessions.model import LEASE_S, Owner, SessionKey, Turn
from agent_kernel.sessions.sqlite import SqliteStore
from tests.sessions.strategies import rounds
from tests.sessions.talk import Clock

KEYS = [SessionKey(namespace, id) for namespace in ("a", "a:b") for id in ("b:c", "c")]
OWNERS = [Owner(name, 1, boot="another-boot", machine="another-machine") for name in ("one", "two")]
PATHS = ["a", "a/b", "a/bc", "a/b/c.ipynb", "z"]
ROOTS = ["/r", "/r2"]

keys, owners = st.sampled_from(KEYS), st.sampled_from(OWNERS)
paths, roots = st.sampled_from(PATHS), st.sampled_from(ROOTS)
limits = st.sampled_from([None, -1, 0, 1, 2, 5])


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.sqlite = SqliteStore(Path(self.folder.name) / "s.db", clock=self.clock)
        self.memory = MemoryStore(clock=self.clock)
        self.turns = 0

    def teardown(self) -> None:
        self.runner.run(self.sqlite.aclose())
        self.runner.close()
        self.folder.cleanup()

    def both(self, call: Callable[[SessionStore], Coroutine[Any, Any, Any]]) -> Any:
        """The answer of both; an error counts as one."""
        answers = [self.runner.run(_answer(call, store)) for store in (self.sqlite, self.memory)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(key=keys, title=st.text(max_size=3))
    def create(self, key: SessionKey, title: str) -> None:
        self.both(lambda store: store.create(key, title))

    @rule(key=keys, owner=owners, fresh=st.booleans())
    def open_turn(self, key: SessionKey, owner: Owner, fresh: bool) -> None:
        self.turns += fresh
        turn = Turn(f"t{self.turns}", key, cell="c", opened=self.clock())
        self.both(lambda store: store.open_turn(turn, owner))

    @rule(key=keys, owner=owners, batches=st.lists(rounds(), max_size=2), behind=st.sampled_from([0, 0, 0, 1]))
    def append(self, key: SessionKey, owner: Owner, batches: list[list[Message]], behind: int) -> None:
        turn, head = self.current(key)
        said = [message for batch in batches for message in batch]
        self.both(lambda store: store.append(turn, owner, said, head - behind))

    @rule(key=keys, owner=owners, batch=rounds())
    def append_after_answering(self, key: SessionKey, owner: Owner, batch: list[Message]) -> None:
        turn, head = self.current(key)
        items = self.runner.run(self.memory.latest(key))
        asked = pairs.unanswered({}, [item.message for item in items])
        said = [*pairs.answers(asked, "ok"), *batch]
        self.both(lambda store: store.append(turn, owner, said, head))

    @rule(key=keys, owner=owners, state=st.sampled_from(["committed", "cancelled", "failed", "interrupted", "open"]))
    def close_turn(self, key: SessionKey, owner: Owner, state: Any) -> None:
        turn, _ = self.current(key)
        self.both(lambda store: store.close_turn(turn, owner, state, "why", Usage(1)))

    @rule(key=keys, owner=owners)
    def heartbeat(self, key: SessionKey, owner: Owner) -> None:
        turn, _ = self.current(key)
        self.both(lambda store: store.heartbeat(turn, owner))

    @rule()
    def recover(self) -> None:
        self.both(lambda store: _sorted_recovery(store))

    @rule(seconds=st.sampled_from([0.0, 1.0, LEASE_S / 2, LEASE_S]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(key=keys, title=st.text(max_size=3))
    def rename(self, key: SessionKey, title: str) -> None:
        self.both(lambda store: store.rename(key, title))

    @rule(key=keys)
    def clear(self, key: SessionKey) -> None:
        self.both(lambda store: store.clear(key))

    @rule(key=keys)
    def delete(self, key: SessionKey) -> None:
        self.both(lambda store: store.delete(key))

    @rule(key=keys, root=roots, path=paths)
    def bind(self, key: SessionKey, root: str, path: str) -> None:
        self.both(lambda store: store.bind(key.namespace, root, path, key.id))

    @rule(root=roots, old=paths, new=paths)
    def move(self, root: str, old: str, new: str) -> None:
        self.both(lambda store: store.move(root, old, new))

    @rule(key=keys, limit=limits, failed=st.booleans())
    def read(self, key: SessionKey, limit: int | None, failed: bool) -> None:
        items = self.both(lambda store: store.latest(key, limit, failed=failed))
        self.both(lambda store: store.turns(key, limit))
        self.both(lambda store: store.list(key.namespace, limit))
        for medium in [] if isinstance(items, str) else [medium for item in items for medium in item.message.media]:
            for other in KEYS:
                self.both(lambda store, digest=medium.hash, other=other: store.blob(other, digest))  # type: ignore[misc]  # bound per loop

    @invariant()
    def the_sessions_are_equal(self) -> None:
        for key in KEYS:
            self.both(lambda store, key=key: store.info(key))  # type: ignore[misc]  # bound per loop
            self.both(lambda store, key=key: store.latest(key))  # type: ignore[misc]  # bound per loop
            self.both(lambda store, key=key: store.turns(key))  # type: ignore[misc]  # bound per loop
            for root in ROOTS:
                self.both(lambda store, key=key, root=root: store.paths(root, key))  # type: ignore[misc]  # bound per loop

    @invariant()
    def no_closed_turn_has_half_a_pair(self) -> None:
        for key in KEYS:
            items = self.runner.run(self.sqlite.latest(key))
            for turn in self.runner.run(self.sqlite.turns(key)):
                waiting = pairs.unanswered({}, [item.message for item in items if item.turn == turn.id])
                assert not waiting or turn.state == "open"

    def current(self, key: SessionKey) -> tuple[Turn, int]:
        """The session's newest turn, or one that nobody opened, and its head."""
        turns = self.runner.run(self.memory.turns(key, 1))
        session = self.runner.run(self.memory.info(key))
        return turns[0] if turns else Turn("nobody-opened-it", key), session.head if session else 0


async def _answer(call: Callable[[SessionStore], Coroutine[Any, Any, Any]], store: SessionStore) -> Any:
    try:
        return await call(store)
    except AgentKernelError as error:
        return f"{error.code}: {error}"


async def _sorted_recovery(store: SessionStore) -> list[Turn]:
    """The order in which turns are closed is not promised."""
    return sorted(await store.recover(), key=lambda turn: (turn.key.namespace, turn.key.id))


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
