"""Helpers for the contract tests: a clock that tests can set, a session with an open turn, calls and results, and
assertions about one session."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace

import pytest

from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Media, Message, Text, ToolCall, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, Owner, Session, SessionKey, Turn
from agent_kernel.core.session_tree import SessionSnapshot

KEY = SessionKey("local", "s")
"""The session to which ``Talk.begin`` adds messages, unless the test names another session."""
PNG = Media.of("image/png", b"\x89PNG" + bytes(2000))
ELSEWHERE = Owner("other", 1, boot="another-boot", machine="another-machine")
"""An owner on another machine. No process on this machine can determine whether that owner is still running, so only
the age of its lease counts."""


@dataclass
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Talk:
    """A session with an open turn, with short methods for the steps of a test."""

    store: SessionStore
    owner: Owner
    key: SessionKey
    turn: Turn

    @classmethod
    async def begin(
        cls, store: SessionStore, owner: Owner, id: str = "s", turn: str = "t1", namespace: str = "local"
    ) -> Talk:
        key = SessionKey(namespace, id)
        await store.create(key)
        return cls(store, owner, key, await store.open_turn(Turn(turn, key), owner))

    async def say(self, *messages: Message) -> list[Item]:
        return await self.store.append(self.turn, self.owner, messages, await self.head())

    async def head(self) -> int:
        return (await read_session(self.store, self.key)).head

    async def close(self, state: TurnState = "committed", reason: str = "") -> bool:
        return await self.store.close_turn(self.turn, self.owner, state, reason)

    async def again(self, turn: str) -> Talk:
        return replace(self, turn=await self.store.open_turn(Turn(turn, self.key), self.owner))

    async def texts(self, limit: int | None = None, *, failed: bool = True) -> list[str]:
        return [item.message.text for item in await self.store.latest(self.key, limit, failed=failed)]


async def read_session(store: SessionStore, key: SessionKey = KEY) -> Session:
    """Return a session that must exist."""
    session = await store.info(key)
    assert session is not None
    return session


async def snapshot(store: SessionStore, key: SessionKey = KEY) -> SessionSnapshot:
    """Return the whole content of a session that must exist."""
    whole = await store.whole(key)
    assert whole is not None
    return whole


async def assert_raises(error: type[Exception], *calls: Awaitable[object]) -> None:
    """Await each of the calls, and assert that it raises ``error``."""
    for call in calls:
        with pytest.raises(error):
            await call


def calls(*ids: str) -> Message:
    return assistant("", [ToolCall(id, "python", {"code": "1+1"}) for id in ids])


def result(id: str, text: str = "2") -> Message:
    return Message("tool", (Text(text),), call_id=id, name="python", status="success")


async def whole_turns(store: SessionStore, count: int, *media: Media) -> None:
    """Add ``count`` turns t1, t2, ... to the session KEY, each with a question (u1, u2, ...) and an answer (a1, a2,
    ...). The first question contains ``media``."""
    for n in range(1, count + 1):
        await store.add_turn(Turn(f"t{n}", KEY), [user(f"u{n}", media if n == 1 else ()), assistant(f"a{n}")])
