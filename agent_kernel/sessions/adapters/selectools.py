"""A session store for selectools: ``AgentConfig(session_store=SelectoolsStore(path), session_id=...)``.

Its methods are synchronous, as the protocol of selectools requires; the work runs on an event loop in its own thread.
"""

from __future__ import annotations

import builtins
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.seams.session_store import ExpiringStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.adapters.event_loop_thread import EventLoopThread
from agent_kernel.sessions.adapters.open_stores import StoreHolder
from agent_kernel.sessions.adapters.selectools_sessions import SavedMemory, SavedSessions, count_of
from agent_kernel.sessions.adapters.selectools_window import text_of

if TYPE_CHECKING:
    from selectools.memory import ConversationMemory
    from selectools.sessions import SessionMetadata, SessionSearchResult

log = logging.getLogger(__name__)


class StorageKey(str):
    """A session id as ``list`` and ``search`` return it: the string ``namespace:id``, which also holds the SessionKey.
    The string alone is ambiguous: ``a:b`` may be a session id, or the session ``b`` of the namespace ``a``."""

    key: SessionKey

    @classmethod
    def of(cls, key: SessionKey, default: str) -> StorageKey:
        storage_key = cls(key.id if key.namespace == default else f"{key.namespace}:{key.id}")
        storage_key.key = key
        return storage_key


class SelectoolsStore:
    """A session store for selectools. ``store`` is a SessionStore, which the caller closes, or the path of a SQLite
    file. Calls without a namespace use ``namespace``; calls may also name any other namespace. A session that did not
    change for ``default_ttl`` seconds is expired: the next call that loads, lists or checks it removes it.

    ``save`` appends the new messages, so that messages that have left the memory's window stay stored. ``load`` returns
    the window that was saved last. If a saved memory was edited, it continues on a new branch of the session. If two
    memories begin with the same messages and then differ, the new messages of both memories are stored in the order in
    which they arrive. Can be used from any thread. Raises ValueError for ids that are empty, longer than 512 characters
    or contain control characters, RuntimeError after ``close``, otherwise the errors of the store.
    """

    def __init__(
        self,
        store: ExpiringStore | str | Path = "sessions.db",
        default_ttl: float | None = None,
        *,
        db_path: str | Path | None = None,
        namespace: str = "local",
        durable: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        place = store if db_path is None else db_path
        self._namespace = namespace
        self._ttl, self._clock = default_ttl, clock
        self._holder: StoreHolder[ExpiringStore] = StoreHolder("SelectoolsStore", place, durable=durable)
        self._bridge = EventLoopThread()
        self._lock = threading.Lock()
        self._memories: WeakKeyDictionary[Any, dict[SessionKey, SavedMemory]] = WeakKeyDictionary()
        self._seen: set[SessionKey] = set()
        self._key("s", None)

    def save(self, session_id: str, memory: ConversationMemory, namespace: str | None = None) -> None:
        """Save a memory. A failure is also logged, since selectools does not report it."""
        try:
            key = self._key(session_id, namespace)
            with self._lock:
                known = self._memories.setdefault(memory, {})
                work = self._sessions.save(key, memory.to_dict(), known.get(key), used_before=key in self._seen)
                known[key] = self._bridge.run(work)
                self._seen.add(key)
        except Exception as error:  # any exception is caught, because it is raised again
            log.error("the memory of session %.80r was not saved (%s)", session_id, type(error).__name__)
            raise

    def load(self, session_id: str, namespace: str | None = None) -> ConversationMemory | None:
        from selectools.memory import ConversationMemory

        key = self._key(session_id, namespace)
        with self._lock:
            loaded = self._bridge.run(self._sessions.load(key))
            if loaded is None:
                return None
            memory: ConversationMemory = ConversationMemory.from_dict(loaded.memory)
            texts = [text_of(body) for body in memory.to_dict()["messages"]]
            self._memories.setdefault(memory, {})[key] = SavedMemory(texts, loaded.head)
            self._seen.add(key)
            return memory

    def list(self) -> builtins.list[SessionMetadata]:
        """Return the sessions of all namespaces, longest unused first, without sessions that have a running turn."""
        from selectools.sessions import SessionMetadata

        return [
            SessionMetadata(
                session_id=StorageKey.of(session.key, self._namespace),
                message_count=count_of(session),
                created_at=session.created,
                updated_at=session.updated,
            )
            for session in self._bridge.run(self._sessions.everything())
        ]

    def delete(self, session_id: str, namespace: str | None = None) -> bool:
        return self._bridge.run(self._sessions.delete(self._key(session_id, namespace)))

    def exists(self, session_id: str, namespace: str | None = None) -> bool:
        return self._bridge.run(self._sessions.info(self._key(session_id, namespace))) is not None

    def branch(self, source_id: str, new_id: str, namespace: str | None = None) -> None:
        """Copy the session ``source_id``, including the limits and the summary of its memory, to ``new_id``. Raises
        ValueError if the source does not exist, or if the target exists."""
        source, target = self._key(source_id, namespace), self._key(new_id, namespace)
        self._bridge.run(self._sessions.branch(source, target))

    def search(self, query: str, namespace: str | None = None, limit: int = 5) -> builtins.list[SessionSearchResult]:
        """Return the sessions that match, best first. A session matches if one of the words of ``query`` occurs in a
        text of a user or an assistant, also as part of a word."""
        from selectools.sessions import SessionSearchResult

        if limit <= 0 or not query.strip():
            return []
        name = None if namespace is None else self._key("s", namespace).namespace
        return [
            SessionSearchResult(
                session_id=StorageKey.of(hit.session.key, name or self._namespace),
                score=hit.score,
                matched_messages=[snippet.text for snippet in hit.snippets],
            )
            for hit in self._bridge.run(self._sessions.search(query, name, limit))
        ]

    def close(self) -> None:
        """Close the SQLite file, unless another adapter uses it, and stop the thread. Idempotent."""
        with self._lock:
            self._holder.close()
        self._bridge.close()

    @property
    def _sessions(self) -> SavedSessions:
        return SavedSessions(self._holder.store, self._ttl, self._clock)

    def _key(self, session_id: str, namespace: str | None) -> SessionKey:
        """Return the key of a session. Raises ValueError for an invalid id, as selectools does."""
        for what, value in (("session_id", session_id), ("namespace", namespace)):
            if value == "":
                raise ValueError(f"{what} must not be empty")
        if isinstance(session_id, StorageKey) and namespace is None:
            return session_id.key
        try:
            return SessionKey(self._namespace if namespace is None else namespace, str(session_id))
        except InvalidRequest as error:
            raise ValueError(str(error)) from error
