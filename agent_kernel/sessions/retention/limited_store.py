"""Wraps any session store so that the retention limits apply to it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from agent_kernel.core.errors import InvalidRequest, SessionNotFound, TurnNotFound
from agent_kernel.core.files import File
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.core.seams.session_store import ExpiringStore, FileStore, SessionStore
from agent_kernel.core.session import Item, OpeningMatch, Owner, SearchHit, Session, SessionKey, SessionQuery, Turn
from agent_kernel.core.session_tree import session_key_of
from agent_kernel.sessions import serialization
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.retention.retention import OnExpire, Retention

T = TypeVar("T")
_MORE = 4
"""Factor by which the number of values to read grows if too few of the values that were read are visible."""


class _SessionMethod:
    """A method of the store whose first argument names the session that it reads or changes. It is called only if this
    session has not expired. LimitedStore has the method only if its store has it."""

    def __init__(self, method: Callable[..., Awaitable[T]], expired: Callable[[], T] | None = None) -> None:
        """``expired`` returns the result for an expired session; None: the method raises SessionNotFound."""
        self._name = method.__name__
        self._expired = expired

    def __get__(self, limited: LimitedStore, owner: type[LimitedStore]) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(self._call, limited, getattr(limited.store, self._name))

    async def _call(
        self, limited: LimitedStore, method: Callable[..., Awaitable[Any]], *given: Any, **options: Any
    ) -> Any:
        key = cast(SessionKey, session_key_of(given[0]))
        if await limited.info(key) is not None:
            return await method(*given, **options)
        if self._expired is None:
            raise _session_error(key)
        return self._expired()


class _CreatingMethod(_SessionMethod):
    """A method of the store that creates the session if it does not exist."""

    async def _call(
        self, limited: LimitedStore, method: Callable[..., Awaitable[Any]], *given: Any, **options: Any
    ) -> Any:
        key = cast(SessionKey, session_key_of(given[0]))
        async with limited.retention.room_for(key):
            limited.retention.note_work(key)
            return await method(*given, **options)


class LimitedStore:
    """A SessionStore that applies retention limits to another store. A session is hidden from the moment it expires. Of
    other sessions, readers see the newest ``max_history_turns`` turns of a branch and a running turn. The older turns
    stay stored: exports, forks and the stored answers of cells contain them.

    Methods that this class does not define are passed to the store. They do not need a check whether a session has
    expired: they are methods of an open turn, whose session never expires, of bindings that name no session, and of
    maintenance.
    """

    everything = _SessionMethod(SessionStore.everything, lambda: ([], []))
    of_cell = _SessionMethod(SessionStore.of_cell, list)
    of_turn = _SessionMethod(SessionStore.of_turn, list)
    blob = _SessionMethod(SessionStore.blob, lambda: None)
    branches = _SessionMethod(SessionStore.branches, list)
    siblings = _SessionMethod(SessionStore.siblings, list)
    summaries = _SessionMethod(SessionStore.summaries, list)
    whole = _SessionMethod(SessionStore.whole, lambda: None)
    grants = _SessionMethod(Grants.grants, list)
    file = _SessionMethod(FileStore.file, lambda: None)
    files = _SessionMethod(FileStore.files, list)
    file_body = _SessionMethod(FileStore.file_body, lambda: None)
    remove_file = _SessionMethod(FileStore.remove_file, lambda: False)

    rename = _SessionMethod(SessionStore.rename)
    describe = _SessionMethod(SessionStore.describe)
    clear = _SessionMethod(SessionStore.clear)
    extend_turn = _SessionMethod(SessionStore.extend_turn)
    pop = _SessionMethod(SessionStore.pop)
    rewind = _SessionMethod(SessionStore.rewind)
    branch = _SessionMethod(SessionStore.branch)
    switch = _SessionMethod(SessionStore.switch)
    drop_branch = _SessionMethod(SessionStore.drop_branch)
    clear_outputs = _SessionMethod(SessionStore.clear_outputs)
    claim_summary = _SessionMethod(SessionStore.claim_summary)
    add_summary = _SessionMethod(SessionStore.add_summary)
    release_summary = _SessionMethod(SessionStore.release_summary)
    undo_summary = _SessionMethod(SessionStore.undo_summary)
    remember = _SessionMethod(SessionStore.remember)
    add_files = _SessionMethod(FileStore.add_files)
    grant = _SessionMethod(Grants.grant)

    add_turn = _CreatingMethod(SessionStore.add_turn)
    add_messages = _CreatingMethod(SessionStore.add_messages)
    restore = _CreatingMethod(SessionStore.restore)

    def __init__(self, store: SessionStore, retention: Retention) -> None:
        self.store = store
        self.retention = retention
        self._turns = retention.limits.max_history_turns
        self._search: Callable[[str, SessionQuery], Awaitable[list[SearchHit]]] = getattr(store, "search", _no_search)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def start(self) -> None:
        self.retention.start()

    async def aclose(self) -> None:
        await self.retention.aclose()
        await self.store.aclose()

    # ------------------------------------------------------------------------------------------- sessions

    async def create(self, key: SessionKey, title: str = "") -> Session:
        async with self.retention.room_for(key):
            self.retention.note_work(key)
            return await self.store.create(key, title)

    async def info(self, key: SessionKey) -> Session | None:
        session = await self.store.info(key)
        return None if session is None else await self._drop_expired(session)

    async def _drop_expired(self, session: Session) -> Session | None:
        return None if await self.retention.is_expired(session) else self.retention.apply_touch(session)

    async def touch(self, key: SessionKey) -> None:
        session = await self.info(key)
        if session is not None:
            await self.retention.touch(session)

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool:
        return await self.retention.delete(key, revision)

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        await self._require(key)
        async with self.retention.room_for(target):
            self.retention.note_work(target)
            return await self.store.fork(key, target, turns)

    # ------------------------------------------------------------------------------------------- turns

    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        await self._require(turn.key)
        self.retention.note_work(turn.key)
        return await self.store.open_turn(turn, owner)

    async def turn(self, namespace: str, id: str) -> Turn | None:
        turn = await self.store.turn(namespace, id)
        return None if turn is None or await self.info(turn.key) is None else turn

    # ------------------------------------------------------------------------------------------- history

    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> list[Item]:
        serialization.validate_limit(limit)
        session = await self.info(key)
        if session is None:
            return []
        if not self._turns or limit == 0:
            return await self.store.latest(key, limit, failed=failed, branch=branch)
        seen = await self._visible_turns(key, branch, failed=failed)
        if not seen:
            return []
        most = session.head - seen[0].since
        items = await self.store.latest(key, most if limit is None else min(limit, most), failed=failed, branch=branch)
        ids = {turn.id for turn in seen}
        return [item for item in items if item.turn in ids]

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> list[Turn]:
        serialization.validate_limit(limit)
        if await self.info(key) is None:
            if before:
                raise _turn_error(before)
            return []
        if not self._turns or limit == 0:
            return await self.store.turns(key, limit, branch=branch, before=before)
        seen = await self._visible_turns(key, branch)
        if before:
            place = next((at for at, turn in enumerate(seen) if turn.id == before), None)
            if place is None:
                raise _turn_error(before)
            seen = seen[:place]
        return seen if limit is None else seen[-limit:]

    async def _visible_turns(self, key: SessionKey, branch: str | None, *, failed: bool = True) -> list[Turn]:
        """Return the newest ``max_history_turns`` turns, and in addition a running turn, in order. ``failed=False``
        leaves out failed turns."""

        async def keep_turn(turn: Turn) -> Turn | None:
            return turn if failed or turn.state != "failed" else None

        async def newest(count: int | None) -> list[Turn]:
            return (await self.store.turns(key, count, branch=branch))[::-1]

        turns = await _read_enough(self._turns + 1, newest, keep_turn)
        runs = bool(turns) and turns[0].state == "open"
        return turns[: self._turns + runs][::-1]

    # ------------------------------------------------------------------------------------------- search

    async def search(self, namespace: str, query: SessionQuery) -> list[SearchHit]:
        async def read_hits(count: int | None) -> list[SearchHit]:
            return await self._search(namespace, replace(query, limit=count or 0))

        await self.retention.write_touches()
        return await _read_enough(query.limit, read_hits, self._visible_hit)

    async def _visible_hit(self, hit: SearchHit) -> SearchHit | None:
        """Return the hit without the snippets of hidden turns; None if the session has expired or no snippet
        remains."""
        if await self.info(hit.session.key) is None:
            return None
        if not self._turns:
            return hit
        newest = await self.store.turns(hit.session.key, self._turns + 2)
        if len(newest) <= self._turns:
            return hit
        since = (await self._visible_turns(hit.session.key, None))[0].since
        snippets = tuple(snippet for snippet in hit.snippets if snippet.seq > since)
        return replace(hit, snippets=snippets) if snippets else None

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        """Return the longest match that has not expired. If the longest match has expired, it is removed and the search
        repeated, because the store returns only one match."""
        while candidate := await self.store.match(namespace, scope, chain):
            session = await self.store.info(candidate.key)
            if session is not None and not await self.retention.is_expired(session):
                return candidate
            if session is None or not await self.retention.remove(session):
                return None
        return None

    # ------------------------------------------------------------------------------------------- files

    async def sessions_of_file(self, namespace: str, id: str) -> list[SessionKey]:
        keys = await cast(FileStore, self.store).sessions_of_file(namespace, id)
        return [key for key in keys if await self.info(key) is not None]

    async def all_files(
        self, namespace: str, *, sessions: Collection[str] | None = None
    ) -> list[tuple[SessionKey, File]]:
        entries = await cast(FileStore, self.store).all_files(namespace, sessions=sessions)
        return [(key, file) for key, file in entries if await self.info(key) is not None]

    # ------------------------------------------------------------------------------------------- bindings

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None:
        await self._require(SessionKey(namespace, session))
        await self.store.bind(namespace, root, path, session)

    async def bound(self, namespace: str, root: str, path: str) -> str | None:
        session = await self.store.bound(namespace, root, path)
        return session if session and await self.info(SessionKey(namespace, session)) else None

    async def paths(self, root: str, session: SessionKey) -> list[str]:
        return await self.store.paths(root, session) if await self.info(session) else []

    async def _require(self, key: SessionKey) -> None:
        if await self.info(key) is None:
            raise _session_error(key)

    # This method is the last one, because in annotations after it the name ``list`` would mean the method.
    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        return await _read_enough(limit, lambda count: self.store.list(namespace, count), self._drop_expired)


def limit_store(
    store: SessionStore,
    limits: RetentionLimits,
    on_expire: Iterable[OnExpire] = (),
    *,
    clock: Callable[[], float] = time.time,
) -> SessionStore:
    """Return the store with these retention limits, or unchanged if there are neither limits nor callbacks. ``clock``
    must be the store's. Raises InvalidRequest for a store that does not support removing sessions."""
    callbacks = tuple(on_expire)
    if not limits and not callbacks:
        return store
    if (limits.ttl or limits.max_sessions) and not (hasattr(store, "idle") and hasattr(store, "excess")):
        raise InvalidRequest(
            f"{type(store).__name__} cannot expire sessions: it has no idle() and excess().",
            hint="Unset ttl and max_sessions (limits), or use the store sqlite.",
        )
    retention = Retention(cast(ExpiringStore, store), limits, callbacks, clock=clock)
    return LimitedStore(store, retention)


async def _read_enough(
    limit: int | None, read: Callable[[int | None], Awaitable[Sequence[T]]], shown: Callable[[T], Awaitable[T | None]]
) -> list[T]:
    """Return the first ``limit`` visible values (None: all of them). ``read(count)`` returns that many values, and
    ``shown`` converts a value to its visible form, or returns None for a hidden value. More values are read until
    enough are visible or none are left."""
    count = limit
    while True:
        entries = await read(count)
        visible = [one for entry in entries if (one := await shown(entry)) is not None]
        if limit is None or count is None or len(visible) >= limit or len(entries) < count:
            return visible[:limit]
        count *= _MORE


async def _no_search(namespace: str, query: SessionQuery) -> list[SearchHit]:
    raise InvalidRequest("This session store does not support search.")


def _turn_error(turn: str) -> TurnNotFound:
    return TurnNotFound(f"There is no turn {turn!r} on this branch.", details={"turn": turn})


def _session_error(key: SessionKey) -> SessionNotFound:
    return SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
