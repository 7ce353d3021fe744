"""Any session store as its limits let it be seen."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

from agent_kernel.core.errors import InvalidRequest, SessionNotFound, TurnNotFound
from agent_kernel.core.files import File
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import Item, OpeningMatch, Owner, SearchHit, SearchQuery, Session, SessionKey, Turn
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.sessions import serialization
from agent_kernel.sessions.retention.limits import Limits
from agent_kernel.sessions.retention.retention import OnExpire, Retained, Retention

T = TypeVar("T")
Sessions: TypeAlias = list[Session]
"""Inside a class with a method ``list`` the type needs another name."""
Turns: TypeAlias = list[Turn]
Items: TypeAlias = list[Item]
Hits: TypeAlias = list[SearchHit]
Paths: TypeAlias = list[str]
Keys: TypeAlias = list[SessionKey]
Owned: TypeAlias = list[tuple[SessionKey, File]]

HIDDEN: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "everything": lambda: ([], []),
        "of_cell": list,
        "of_turn": list,
        "blob": lambda: None,
        "branches": list,
        "siblings": list,
        "summaries": list,
        "grants": list,
        "whole": lambda: None,
        "file": lambda: None,
        "files": list,
        "file_body": lambda: None,
        "remove_file": lambda: False,
    }
)
"""Reads of one session, and what they give when it is gone."""
REFUSED = frozenset(
    {"rename", "describe", "clear", "extend_turn", "pop", "rewind", "branch", "switch", "drop_branch"}
    | {"clear_outputs", "add_files"}
    | {"claim_summary", "add_summary", "release_summary", "undo_summary", "remember"}
    | {"grant"}
)
"""Changes of one session: SessionNotFound when it is gone."""
MADE = frozenset({"add_turn", "add_messages", "restore"})
"""Changes that make the session if it is not there."""
_MORE = 4
"""How many times as much is read when too little of what was read is to be shown."""


class LimitedStore:
    """A SessionStore in which a session that is too old is gone for every reader at that moment, and of the others the
    newest ``max_history_turns`` turns of a branch are seen, beside one that runs. What is not seen is still stored:
    ``everything`` (exports, forks) and the stored answers of cells have all of it.

    Methods that are not named here are the store's own: those of an open turn, whose session never expires, bindings
    that name no session, and care.
    """

    def __init__(self, store: SessionStore, retention: Retention) -> None:
        self._store = store
        self.retention = retention
        self._turns = retention.limits.max_history_turns
        self._search: Callable[[str, SearchQuery], Awaitable[Hits]] = getattr(store, "search", _no_search)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in HIDDEN or name in REFUSED or name in MADE:
            method = self._guarded(name, method)
            setattr(self, name, method)
        return method

    def _guarded(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def making(first: Any, *given: Any, **options: Any) -> Any:
            async with self.retention.room_for(_key_of(first)):
                self.retention.worked(_key_of(first))
                return await method(first, *given, **options)

        async def guarded(first: Any, *given: Any, **options: Any) -> Any:
            if await self.info(_key_of(first)) is not None:
                return await method(first, *given, **options)
            if name in REFUSED:
                raise _gone(_key_of(first))
            return HIDDEN[name]()

        return making if name in MADE else guarded

    def start(self) -> None:
        self.retention.start()

    async def aclose(self) -> None:
        await self.retention.aclose()
        await self._store.aclose()

    # ------------------------------------------------------------------------------------------- sessions

    async def create(self, key: SessionKey, title: str = "") -> Session:
        async with self.retention.room_for(key):
            self.retention.worked(key)
            return await self._store.create(key, title)

    async def info(self, key: SessionKey) -> Session | None:
        session = await self._store.info(key)
        return None if session is None else await self._alive(session)

    async def _alive(self, session: Session) -> Session | None:
        return None if await self.retention.expired(session) else self.retention.as_used(session)

    async def list(self, namespace: str, limit: int | None = 50) -> Sessions:
        return await _enough(limit, lambda count: self._store.list(namespace, count), self._alive)

    async def touch(self, key: SessionKey) -> None:
        session = await self.info(key)
        if session is not None:
            await self.retention.touch(session)

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool:
        return await self.retention.delete(key, revision)

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        await self._must(key)
        async with self.retention.room_for(target):
            self.retention.worked(target)
            return await self._store.fork(key, target, turns)

    # ------------------------------------------------------------------------------------------- turns

    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        await self._must(turn.key)
        self.retention.worked(turn.key)
        return await self._store.open_turn(turn, owner)

    async def turn(self, namespace: str, id: str) -> Turn | None:
        turn = await self._store.turn(namespace, id)
        return None if turn is None or await self.info(turn.key) is None else turn

    # ------------------------------------------------------------------------------------------- history

    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> Items:
        serialization.checked_limit(limit)
        session = await self.info(key)
        if session is None:
            return []
        if not self._turns or limit == 0:
            return await self._store.latest(key, limit, failed=failed, branch=branch)
        seen = await self._seen(key, branch, failed=failed)
        if not seen:
            return []
        most = session.head - seen[0].since
        items = await self._store.latest(key, most if limit is None else min(limit, most), failed=failed, branch=branch)
        ids = {turn.id for turn in seen}
        return [item for item in items if item.turn in ids]

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> Turns:
        serialization.checked_limit(limit)
        if await self.info(key) is None:
            if before:
                raise _not_there(before)
            return []
        if not self._turns or limit == 0:
            return await self._store.turns(key, limit, branch=branch, before=before)
        seen = await self._seen(key, branch)
        if before:
            place = next((at for at, turn in enumerate(seen) if turn.id == before), None)
            if place is None:
                raise _not_there(before)
            seen = seen[:place]
        return seen if limit is None else seen[-limit:]

    async def _seen(self, key: SessionKey, branch: str | None, *, failed: bool = True) -> Turns:
        """The newest turns that count, and the one that runs."""

        async def shown(turn: Turn) -> Turn | None:
            return turn if failed or turn.state != "failed" else None

        async def newest(count: int | None) -> Turns:
            return (await self._store.turns(key, count, branch=branch))[::-1]

        found = await _enough(self._turns + 1, newest, shown)
        runs = bool(found) and found[0].state == "open"
        return found[: self._turns + runs][::-1]

    # ------------------------------------------------------------------------------------------- finding

    async def search(self, namespace: str, query: SearchQuery) -> Hits:
        async def found(count: int | None) -> Hits:
            return await self._search(namespace, replace(query, limit=count or 0))

        await self.retention.write_touches()
        return await _enough(query.limit, found, self._shown_hit)

    async def _shown_hit(self, hit: SearchHit) -> SearchHit | None:
        """Without the snippets of turns that are not seen."""
        if await self.info(hit.session.key) is None:
            return None
        if not self._turns:
            return hit
        newest = await self._store.turns(hit.session.key, self._turns + 2)
        if len(newest) <= self._turns:
            return hit
        since = (await self._seen(hit.session.key, None))[0].since
        snippets = tuple(snippet for snippet in hit.snippets if snippet.seq > since)
        return replace(hit, snippets=snippets) if snippets else None

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        """One that is too old is removed, for it may hide another."""
        while found := await self._store.match(namespace, scope, chain):
            session = await self._store.info(found.key)
            if session is not None and not await self.retention.expired(session):
                return found
            if session is None or not await self.retention.remove(session):
                return None
        return None

    # ------------------------------------------------------------------------------------------- files

    async def sessions_of_file(self, namespace: str, id: str) -> Keys:
        found = await cast(FileStore, self._store).sessions_of_file(namespace, id)
        return [key for key in found if await self.info(key) is not None]

    async def all_files(
        self, namespace: str, limit: int | None = None, *, sessions: Collection[str] | None = None
    ) -> Owned:
        async def found(count: int | None) -> Owned:
            return await cast(FileStore, self._store).all_files(namespace, count, sessions=sessions)

        async def shown(one: tuple[SessionKey, File]) -> tuple[SessionKey, File] | None:
            return None if await self.info(one[0]) is None else one

        return await _enough(limit, found, shown)

    # ------------------------------------------------------------------------------------------- bindings

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        await self._must(SessionKey(namespace, session))
        await self._store.bind(namespace, root, path, session)

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        session = await self._store.bound(namespace, root, path)
        return session if session and await self.info(SessionKey(namespace, session)) else None

    async def paths(self, root: str, session: SessionKey) -> Paths:
        return await self._store.paths(root, session) if await self.info(session) else []

    async def _must(self, key: SessionKey) -> None:
        if await self.info(key) is None:
            raise _gone(key)


def limited(
    store: SessionStore, limits: Limits, on_expire: Iterable[OnExpire] = (), *, clock: Callable[[], float] = time.time
) -> SessionStore:
    """The store itself where nothing is limited and nobody wants to know. ``clock`` is the store's. Raises
    InvalidRequest for a store whose sessions can not go by themselves."""
    told = tuple(on_expire)
    if not limits and not told:
        return store
    if (limits.ttl or limits.max_sessions) and not (hasattr(store, "idle") and hasattr(store, "excess")):
        raise InvalidRequest(
            f"{type(store).__name__} keeps sessions for ever: it has no idle() and excess().",
            hint="Unset ttl and max_sessions (limits), or use the store sqlite.",
        )
    retention = Retention(cast(Retained, store), limits, told, clock=clock)
    return cast(SessionStore, LimitedStore(store, retention))  # what is not in the class is the store's own


async def _enough(
    limit: int | None, read: Callable[[int | None], Awaitable[Sequence[T]]], shown: Callable[[T], Awaitable[T | None]]
) -> list[T]:
    """The first ``limit`` of what is shown: reads more until there are enough, or no more."""
    count = limit
    while True:
        found = await read(count)
        kept = [one for each in found if (one := await shown(each)) is not None]
        if limit is None or count is None or len(kept) >= limit or len(found) < count:
            return kept[:limit]
        count *= _MORE


async def _no_search(namespace: str, query: SearchQuery) -> list[SearchHit]:
    raise InvalidRequest("This store has no search.")


def _key_of(first: Any) -> SessionKey:
    """Of a turn or a summary, of a whole session, or the key itself."""
    if isinstance(first, SessionKey):
        return first
    key: SessionKey = first.session.key if isinstance(first, SessionSnapshot) else first.key
    return key


def _not_there(turn: str) -> TurnNotFound:
    return TurnNotFound(f"There is no turn {turn!r} on this branch.", details={"turn": turn})


def _gone(key: SessionKey) -> SessionNotFound:
    return SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
