"""A session for OpenAI's Agents SDK: ``Runner.run(agent, text, session=AgentsSession(id, path))``.

The module does not import the SDK, whose session protocol is structural. Items are returned exactly as they were added,
and agent-kernel's own agent, search and export can use the same session.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.core.errors import InvalidRequest, SessionBusy, SessionNotFound
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, is_too_deep
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, Owner, SessionKey, Turn, new_id
from agent_kernel.sessions.adapters.open_stores import MEMORY, StoreHolder
from agent_kernel.sessions.export import responses_items
from agent_kernel.sessions.export.responses_items import Body
from agent_kernel.sessions.serialization import MAX_DEPTH

RECORD = {"by": "openai-agents"}
"""The ``record`` of turns that OpenAI's Agents SDK wrote."""
Forms: TypeAlias = Sequence[tuple[Item, list[Body]]]
"""Stored items, each with its form in the Responses API."""
Replace: TypeAlias = Callable[[int, list[Any]], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings for reading a session. They are used if the SDK with its own SessionSettings is not installed.
    ``limit`` is the number of newest items to return (None: all)."""

    limit: int | None = None

    def resolve(self, override: Any) -> ReadSettings:
        """Return a copy with the values of ``override`` (settings or a mapping)."""
        limit = override.get("limit") if isinstance(override, Mapping) else getattr(override, "limit", None)
        return self if limit is None else replace(self, limit=limit)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class AgentsSession:
    """A session of OpenAI's Agents SDK that is stored by agent-kernel. ``store`` is a SessionStore, which the caller
    closes, or the path of a SQLite file (``:memory:``: private to this object), which ``close`` releases. ``namespace``
    may be a function of the run's context wrapper (None outside of a run); a tenant never sees another tenant's session
    with the same id. ``clean`` changes a message before it is stored, like ``Redactor().message``. The SDK finds the
    items to remove by comparison, so it does not find, and does not remove, items that ``clean`` has changed.

    Can be used from any thread and event loop. Every method except ``pop_item`` is one transaction; CancelledError is
    raised only after it has ended. Raises RuntimeError after ``close``, TypeError for a value that is not JSON,
    InvalidRequest for a negative limit, and the errors of the store, among them SessionBusy while agent-kernel's own
    agent runs a turn.
    """

    def __init__(
        self,
        session_id: str,
        store: SessionStore | str | Path = MEMORY,
        *,
        db_path: str | Path | None = None,
        namespace: str | Callable[[Any], str] = "local",
        session_settings: Any = None,
        durable: bool = False,
        clean: Callable[[Message], Message] | None = None,
    ) -> None:
        place = store if db_path is None else db_path
        self.session_id = session_id
        self._settings = _settings(session_settings)
        self.db_path = place if isinstance(place, str | Path) else None
        self._namespace = namespace
        self._clean = clean or (lambda message: message)
        self._holder: StoreHolder[SessionStore] = StoreHolder("AgentsSession", place, durable=durable)
        if isinstance(namespace, str):
            SessionKey(namespace, session_id)

    @property
    def session_settings(self) -> Any:
        """Return the SDK's SessionSettings if the SDK is loaded, since parts of the SDK accept no other type; otherwise
        ReadSettings."""
        if isinstance(self._settings, ReadSettings):
            self._settings = _settings_type()(self._settings.limit)
        return self._settings

    @session_settings.setter
    def session_settings(self, settings: Any) -> None:
        self._settings = _settings(settings)

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Body]:
        """Return the newest ``limit`` items in order (None: the limit of the settings, or all). Items of agent-kernel's
        own agent are returned as messages, calls and outputs of the Responses API; its hidden messages are left out."""
        store, key = self._holder.store, self._key(wrapper)
        count = limit if limit is not None else getattr(self.session_settings, "limit", None)
        items = _flat(await self._newest(store, key, count))
        return items if count is None else items[-count:] if count else []

    async def add_items(self, items: Sequence[Mapping[str, Any]], *, wrapper: Any = None) -> None:
        """Add all items or none. A user message begins a turn."""
        store, key = self._holder.store, self._key(wrapper)
        if items:
            await store.add_messages(key, [self._clean(to_message(item)) for item in items], record=RECORD)

    async def pop_item(self, *, wrapper: Any = None) -> Body | None:
        """Remove and return the newest item, or return None if there is none. Calls and results of agent-kernel's own
        agent can only be removed together. If one of them is removed, the others are stored again as items of the SDK,
        in a second transaction."""
        store, key = self._holder.store, self._key(wrapper)
        while unit := await self._newest_unit(store, key):
            items = _flat(await self._forms(store, key, unit))
            if not await store.rewind(key, unit):
                continue  # another writer was faster: the newest item has changed
            if items:
                if rest := [responses_items.message_of(item) for item in items[:-1]]:
                    await store.add_messages(key, rest, record=RECORD)
                return items[-1]
        return None

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Remove the items. The session itself, its title and its binding to a notebook stay."""
        store, key = self._holder.store, self._key(wrapper)
        with suppress(SessionNotFound):
            await store.clear(key)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> CompactionSnapshot:
        """Return the newest ``limit`` items regardless of the settings. The SDK's OpenAIResponsesCompactionSession
        calls this by name. Items that compaction replaces stay in the session as an earlier branch. The SDK's
        EncryptedSession passes ``prune_prefix``; then the replaced items, and expired items at the beginning, are
        removed."""
        store, key = self._holder.store, self._key(None)
        forms = await self._newest(store, key, limit + 1)
        items = _flat(forms)
        first = max(0, len(items) - limit)

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            if first + start >= len(items):
                return False
            messages = [self._clean(to_message(item)) for item in output]
            return await Suffix(store, key, forms, first + start, prune_prefix).replace(messages, RECORD)

        return CompactionSnapshot(items[first:], not first, replace_suffix)

    def close(self) -> None:
        """Release the file. Idempotent."""
        self._holder.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> AgentsSession:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _key(self, wrapper: Any) -> SessionKey:
        namespace = self._namespace if isinstance(self._namespace, str) else self._namespace(wrapper)
        return SessionKey(namespace, self.session_id)

    @staticmethod
    async def _head(store: SessionStore, key: SessionKey) -> int:
        session = await store.info(key)
        return session.head if session else 0

    @classmethod
    async def _newest(cls, store: SessionStore, key: SessionKey, count: int | None) -> Forms:
        """Return the newest stored items with their Responses API forms: as many as are needed for ``count`` forms, or
        all items if ``count`` is None."""
        forms = await cls._forms(store, key, await store.latest(key, count, failed=False))
        window = count or 0
        while count and len(_flat(forms)) < count and window < await cls._head(store, key):
            window *= 2  # a pair was cut, or items have no form in the SDK: read further back
            forms = await cls._forms(store, key, await store.latest(key, window, failed=False))
        return forms

    @staticmethod
    async def _forms(store: SessionStore, key: SessionKey, items: Sequence[Item]) -> Forms:
        hashes = dict.fromkeys(medium.hash for item in items for medium in item.message.media)
        stored = {digest: await store.blob(key, digest) for digest in hashes}
        blobs = {digest: data for digest, data in stored.items() if data is not None}
        return list(zip(items, responses_items.items_of(items, blobs), strict=True))

    @staticmethod
    async def _newest_unit(store: SessionStore, key: SessionKey) -> list[Item]:
        """Return the newest item, or the newest calls with all their results."""
        items, window = await store.latest(key, 1), 1
        while not items and window < await AgentsSession._head(store, key):
            window *= 4
            items = await store.latest(key, window)
        start = next((at for at in range(len(items) - 1, -1, -1) if items[at].message.role != "tool"), 0)
        return items[start:]


def to_message(item: Mapping[str, Any]) -> Message:
    """Convert an item to a message. Raises TypeError if the item is not a JSON object, and InvalidRequest if it has too
    many levels."""
    if not isinstance(item, Mapping):
        raise TypeError(f"An item must be a mapping, not {type(item).__name__}.")
    if is_too_deep(item, MAX_DEPTH):
        raise InvalidRequest(f"An item can have at most {MAX_DEPTH} levels.")
    json.dumps(item)
    return responses_items.message_of(item)


def _flat(forms: Forms) -> list[Body]:
    return [body for _, bodies in forms for body in bodies]


def _settings_type() -> Callable[[int | None], Any]:
    module = sys.modules.get("agents.memory.session_settings")
    return getattr(module, "SessionSettings", ReadSettings)


def _settings(settings: Any) -> Any:
    """Return settings of the SDK unchanged; convert None and mappings to ReadSettings. Raises TypeError for an unknown
    key."""
    if settings is None:
        return ReadSettings()
    if not isinstance(settings, Mapping):
        return settings
    unknown = sorted(str(name) for name in settings if name != "limit")
    if unknown:
        raise TypeError(f"Unknown session settings: {', '.join(unknown)}")
    return ReadSettings(settings.get("limit"))


# Serves the automatic compaction of OpenAI's Agents SDK: returns the newest items of a session, and replaces the last
# of them with a shorter version.
#
# The SDK reads the newest items of a session regardless of its read limit, lets the API write a shorter version of the
# last ones, and replaces these items with that version. Here the shorter version is stored on a new branch, in one
# transaction, so that no reader sees a history that has neither version. The branch with the replaced items stays
# available to people, search and export.


@dataclass(frozen=True, slots=True)
class CompactionSnapshot:
    """The part of a session that the SDK's compaction reads. ``items`` are its newest items, and ``complete`` is true
    if they are the whole history. ``replace_suffix`` replaces the items from an index on; it returns False and writes
    nothing if they are no longer the newest items."""

    items: list[Body]
    complete: bool
    replace_suffix: Replace


class Suffix:
    """The newest items of a session, which compaction replaces.

    ``start`` is the index of the first of these items in the flattened Responses API bodies of ``forms``.
    ``is_expired`` is passed by the SDK's EncryptedSession, and returns True for an item that can no longer be
    decrypted. If ``is_expired`` is given, a replacement also removes the expired items at the beginning of the history,
    and deletes the branch that holds the replaced items. If it is None, that branch stays in the session.
    """

    def __init__(
        self, store: SessionStore, key: SessionKey, forms: Forms, start: int, is_expired: Callable[[Body], bool] | None
    ) -> None:
        places = [(at, offset) for at, (_, bodies) in enumerate(forms) for offset in range(len(bodies))]
        at, offset = places[start]
        self._store = store
        self._key = key
        self._is_expired = is_expired
        self._tail = [item for item, _ in forms[at:]]
        # The first item may correspond to several items of the Responses API, a message and its calls. Those of them
        # that are not replaced are stored again.
        self._rest = [responses_items.message_of(body) for body in forms[at][1][:offset]]
        self._splits_pair = not offset and self._tail[0].message.role == "tool"

    async def replace(self, messages: Sequence[Message], record: dict[str, Any]) -> bool:
        """Replace the suffix with ``messages``, in a turn with this ``record``, and return True. Returns False, without
        a change, if the suffix is no longer the end of the branch or another turn of the session runs."""
        before = await self._read_before()
        if before is None or self._splits_pair:
            return False
        expired = self._count_expired(before)
        fresh = [*(item.message for item in before[expired:] if expired), *self._rest, *messages]
        if not fresh:
            return await self._store.rewind(self._key, [*before, *self._tail] if expired else self._tail)
        with suppress(SessionBusy):
            return await self._branch_off(fresh, record, expired)
        return False

    async def _read_before(self) -> list[Item] | None:
        """Return the items of the current branch before these newest items, or None if newer items have been added."""
        items = await self._store.latest(self._key, failed=False)
        count = len(items) - len(self._tail)
        return items[:count] if count >= 0 and items[count:] == self._tail else None

    def _count_expired(self, before: Sequence[Item]) -> int:
        """Return how many items at the beginning of the history are older than the retention period."""
        if self._is_expired is None:
            return 0
        for count, bodies in enumerate(responses_items.items_of(before, {})):
            if not bodies or not all(self._is_expired(body) for body in bodies):
                return count
        return len(before)

    async def _branch_off(self, fresh: Sequence[Message], record: dict[str, Any], expired: int) -> bool:
        """Write the messages ``fresh`` on a new branch in place of the suffix, and return True. Returns False if the
        history has changed since it was read: the suffix is no longer its end, or the history no longer begins with
        ``expired`` expired items. The open turn prevents other writers from changing the session after this check."""
        owner = Owner.here()
        turn = await self._store.open_turn(Turn(new_id("turn"), self._key, record=record), owner)
        replaced = False
        try:
            before, session = await self._read_before(), await self._store.info(self._key)
            if before is None or session is None or self._count_expired(before) != expired:
                return False
            behind = before[-1].seq if before and not expired else 0
            await self._store.append_at(turn, owner, fresh, session.head, behind=behind)
            replaced = True
        finally:
            state: TurnState = "committed" if replaced else "cancelled"
            await self._store.close_turn(turn, owner, state, "" if replaced else "The history has changed.")
        if self._is_expired is not None:
            await self._store.drop_branch(self._key, session.branch)
        return True
