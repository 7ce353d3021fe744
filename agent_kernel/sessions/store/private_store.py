"""Combines the store of the server with a store in memory for private sessions. The id of a session determines which of
the two stores holds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from agent_kernel.core.approval import ApprovalQuestion
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import OpeningMatch, Session, SessionKey, Turn, new_id
from agent_kernel.core.session_tree import session_key_of
from agent_kernel.sessions.store.memory import MemoryStore

PREFIX = "private:"


def is_private(session: str) -> bool:
    """Return whether the session with this id is private: it is stored in memory only. Files, sidecars and transcripts
    do not contain it, and search does not find it."""
    return session.startswith(PREFIX)


def private_id() -> str:
    return PREFIX + new_id("session")


class PrivateStore:
    """A SessionStore that combines two stores: ``kept``, and a store in memory for private sessions. The latter is lost
    when this process ends or the store is closed.

    Lists, search and maintenance use only ``kept``. A method that is not defined here is called on the store that holds
    the session of its first argument.
    """

    def __init__(self, kept: SessionStore) -> None:
        self._kept = kept
        self._private = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._kept, name)
        private = getattr(self._private, name, None)
        if not callable(attribute) or private is None:
            return attribute
        method = _route(attribute, private)
        setattr(self, name, method)
        return method

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        """Fork the session within its store. Raises InvalidRequest if only one of the two ids is private, since nothing
        may be copied from a private session to another one or the other way round."""
        if is_private(key.id) != is_private(target.id):
            raise InvalidRequest(
                "A fork of a private session must be private, and a fork of any other session must not be."
            )
        return await (self._private if is_private(key.id) else self._kept).fork(key, target, turns)

    async def turn(self, namespace: str, id: str) -> Turn | None:
        return await self._private.turn(namespace, id) or await self._kept.turn(namespace, id)

    async def question(self, namespace: str, id: str) -> ApprovalQuestion | None:
        return await self._private.question(namespace, id) or await cast(Grants, self._kept).question(namespace, id)

    async def recover(self) -> list[Turn]:
        return [*await self._private.recover(), *await self._kept.recover()]

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        """Bind a notebook. A binding to a private session hides the binding in ``kept``, which applies again when the
        private binding is removed."""
        if is_private(session):
            await self._private.bind(namespace, root, path, session)
        else:
            await self._kept.bind(namespace, root, path, session)
            await self._private.unbind(namespace, root, path)

    async def unbind(self, namespace: str, root: str, path: str) -> bool:
        return await self._private.unbind(namespace, root, path) or await self._kept.unbind(namespace, root, path)

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        return await self._private.bound(namespace, root, path) or await self._kept.bound(namespace, root, path)

    async def move(self, root: str, old: str, new: str) -> int:
        return await self._private.move(root, old, new) + await self._kept.move(root, old, new)

    async def paths(self, root: str, session: SessionKey) -> list[str]:
        return await (self._private if is_private(session.id) else self._kept).paths(root, session)

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        store = cast(FileStore, self._kept)
        return [*await self._private.sessions_of_file(namespace, id), *await store.sessions_of_file(namespace, id)]

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        return await self._private.match(namespace, scope, chain) or await self._kept.match(namespace, scope, chain)

    async def private_sessions(self, namespace: str) -> list[Session]:
        return await self._private.list(namespace, None)

    async def aclose(self) -> None:
        await self._private.aclose()
        await self._kept.aclose()


def _route(kept: Callable[..., Any], private: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **options: Any) -> Any:
        key = session_key_of(given[0]) if given else None
        return (private if key is not None and is_private(key.id) else kept)(*given, **options)

    return call
