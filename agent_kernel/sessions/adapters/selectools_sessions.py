"""Does the work of a selectools store: saves and loads the windows of memories, and removes expired sessions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from agent_kernel.core.errors import Conflict, SessionNotFound
from agent_kernel.core.messages import shorten
from agent_kernel.core.seams.session_store import ExpiringStore
from agent_kernel.core.session import Item, SearchHit, Session, SessionKey, SessionQuery, SessionUpdate
from agent_kernel.sessions.adapters.selectools_messages import Body, bodies_of, messages_of
from agent_kernel.sessions.adapters.selectools_window import Window, find_divergence, overlap, text_of

NAME = "selectools"
RECORD = {"by": NAME}
LONGEST_SUMMARY = 32_000
"""Maximum characters of a stored summary. All metadata of a session together may have 64 KiB."""
LONGEST_QUERY = 1_000


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """A memory as it was last loaded or saved: the texts of its messages, and ``head``, the sequence number of the
    session's newest item at that time."""

    texts: Sequence[str]
    head: int


@dataclass(frozen=True, slots=True)
class LoadedMemory:
    """A memory that was read from the store: ``memory`` in the form that ``ConversationMemory.from_dict`` accepts, and
    ``head``, the sequence number of the session's newest item."""

    memory: Body
    head: int


class SavedSessions:
    """Saves and loads the memories of selectools in a session store. ``ttl`` is the number of seconds after its last
    change at which a session expires (None: never)."""

    def __init__(self, store: ExpiringStore, ttl: float | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._ttl = ttl
        self._clock = clock

    async def save(
        self, key: SessionKey, memory: Body, last_saved: SavedMemory | None, *, used_before: bool
    ) -> SavedMemory:
        """Append the new messages of a memory. ``last_saved`` is the memory as it was last loaded or saved.
        ``used_before`` is true if the caller has used this session before. If the first message of ``memory`` is not
        stored, the memory then replaces the window (the messages that ``load`` returns); otherwise its messages are
        added to the window."""
        bodies = memory["messages"]
        texts = [text_of(body) for body in bodies]
        session = await self.info(key) or await self._store.create(key)
        same = overlap(last_saved.texts, texts) if last_saved is not None else 0
        if last_saved is not None and (same or not last_saved.texts):
            new, count = len(texts) - same, len(texts) + max(0, session.head - last_saved.head)
        else:
            new, count = await self._compare(session, texts, used_before=used_before)
        head = session.head
        if new:
            added = await self._store.add_messages(key, messages_of(bodies[-new:]), record=RECORD)
            head = added[-1].seq
        await self._describe(key, session, memory, min(count, max(len(texts), memory["max_messages"])), head)
        return SavedMemory(texts, head)

    async def load(self, key: SessionKey) -> LoadedMemory | None:
        session = await self.info(key)
        if session is None:
            return None
        window = Window.of(session.metadata.get(NAME)) or Window(head=session.head)
        count = window.at(session.head)
        bodies = bodies_of([item.message for item in await self._store.latest(key, count, failed=False)])
        facts = {"max_messages": window.max_messages, "max_tokens": window.max_tokens, "summary": window.summary}
        return LoadedMemory({**facts, "messages": bodies, "message_count": len(bodies)}, session.head)

    async def info(self, key: SessionKey) -> Session | None:
        """Return the session, or None if there is none. An expired session is removed and None is returned, unless it
        was saved again before it could be removed."""
        while session := await self._store.info(key):
            if not self._is_expired(session):
                return session
            with suppress(Conflict):
                await self._store.delete(key, session.revision)
        return None

    async def everything(self) -> list[Session]:
        sessions = await self._store.idle(math.inf)
        return [session for session in sessions if not self._is_expired(session) or await self.info(session.key)]

    async def delete(self, key: SessionKey) -> bool:
        return await self.info(key) is not None and await self._store.delete(key)

    async def branch(self, source: SessionKey, target: SessionKey) -> None:
        """Copy the session ``source`` to ``target``. Raises ValueError if the source does not exist, or if the target
        exists."""
        if await self.info(target) is not None:
            raise ValueError(f"Session {target.id!r} already exists.")
        session = await self.info(source)
        if session is None:
            raise ValueError(f"Session {source.id!r} not found.")
        try:
            await self._store.fork(source, target)
        except (Conflict, SessionNotFound) as error:
            raise ValueError(str(error)) from error
        await self._store.describe(target, SessionUpdate(metadata=session.metadata, context=session.context))

    async def search(self, query: str, namespace: str | None, limit: int) -> list[SearchHit]:
        """Return at most ``limit`` hits, best first, from ``namespace``, or from all namespaces if it is None."""
        known = {namespace} if namespace else {session.key.namespace for session in await self._store.idle(math.inf)}
        hits: list[SearchHit] = []
        for name in known:
            candidates = await self._store.search(
                name, SessionQuery(query[:LONGEST_QUERY], limit if self._ttl is None else 10**6)
            )
            hits += [hit for hit in candidates if not self._is_expired(hit.session)]
        return sorted(hits, key=lambda hit: (-hit.score, hit.session.key.id))[:limit]

    async def _compare(self, session: Session, texts: Sequence[str], *, used_before: bool) -> tuple[int, int]:
        """Compare the stored session with the ``texts`` of a memory that this object has neither loaded nor saved
        before. Returns (number of last messages that are new, number of messages of the window). If the memory was
        edited, begins a branch at the first difference."""
        key = session.key
        items = await self._store.latest(key, max(len(texts), count_of(session)) + 1, failed=False)
        stored = [text_of(body) for item in items for body in bodies_of([item.message])]
        same = overlap(stored, texts)
        if same or not texts or not stored or len(stored) != len(items):
            return len(texts) - same, len(texts)
        where = find_divergence(stored, texts)
        if where is None:
            return len(texts), len(texts) + (0 if used_before else session.head)
        kept_count = await self._branch_before(key, items, where.start + where.same) - where.start
        return len(texts) - max(0, kept_count), len(texts)

    async def _branch_before(self, key: SessionKey, items: Sequence[Item], at: int) -> int:
        """Begin a branch before the turn of the item ``items[at]``. Returns how many of ``items`` the new branch still
        contains."""
        turn = items[at].turn
        await self._store.branch(key, before=turn)
        return next(index for index, item in enumerate(items) if item.turn == turn)

    async def _describe(self, key: SessionKey, session: Session, memory: Body, count: int, head: int) -> None:
        metadata = {**session.metadata, **describe_window(memory, count, head)}
        if metadata != session.metadata:
            await self._store.describe(key, SessionUpdate(metadata=metadata))

    def _is_expired(self, session: Session) -> bool:
        return self._ttl is not None and self._clock() - session.updated > self._ttl


def describe_window(memory: Body, count: int, head: int) -> dict[str, Any]:
    """Return the metadata of a session for a memory whose window consists of the last ``count`` messages up to the item
    with the sequence number ``head``."""
    summary = memory.get("summary")
    short = shorten(summary, LONGEST_SUMMARY) if isinstance(summary, str) else None
    return {NAME: asdict(Window(memory["max_messages"], memory.get("max_tokens"), short, count, head))}


def count_of(session: Session) -> int:
    """Return how many messages ``load`` returns for this session: those of its window, or all items of a session that
    selectools did not save."""
    window: Any = Window.of(session.metadata.get(NAME))
    return session.head if window is None else int(window.at(session.head))
