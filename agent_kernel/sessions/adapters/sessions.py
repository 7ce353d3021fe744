"""Lets programs keep conversations: ``Sessions.open("sqlite:chats.db")["support-42"]`` is a conversation to which a
program adds messages, and from which it reads them.

Everything else that a session can do is in the interface of the store, ``Sessions.store``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from agent_kernel.core import messages
from agent_kernel.core.errors import InvalidRequest, SessionNotFound
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SearchHit, Session, SessionKey, SessionQuery
from agent_kernel.sessions import undo
from agent_kernel.sessions.adapters.event_loop_thread import EventLoopThread
from agent_kernel.sessions.store.store_url import open_store
from agent_kernel.sessions.undo import UndoResult

RECORD = {"by": "program"}
"""The ``record`` of turns that a program wrote."""


class Chat:
    """One conversation. It is stored from its first message on; until then it is empty.

    The methods work on the current branch of the session. Each is one transaction; CancelledError is raised only after
    it has ended. They raise the errors of the store, among them SessionBusy while an agent runs a turn of the session.
    ``async for message in chat`` reads the messages that a person sees, in order, as they are when the loop begins.
    Media in these messages have no data.
    """

    def __init__(self, store: SessionStore, key: SessionKey) -> None:
        self._store = store
        self.key = key

    async def add(self, *given: Message, user: str | None = None, assistant: str | None = None) -> None:
        """Append messages in one transaction: first the values ``given``, then a message with the text ``user``, then
        one with the text ``assistant``. A user message begins a turn. Raises InvalidRequest if there is no message, and
        for a tool call without its result."""
        added = [*given]
        if user is not None:
            added.append(messages.user(user))
        if assistant is not None:
            added.append(messages.assistant(assistant))
        if not added:
            raise InvalidRequest("There is no message to add.", hint='For example: await chat.add(user="Hello")')
        await self._store.add_messages(self.key, added, record=RECORD)

    async def __aiter__(self) -> AsyncIterator[Message]:
        for item in await self._store.latest(self.key):
            if not item.message.hidden:
                yield item.message

    async def last(self, count: int = 1) -> list[Message]:
        """Return the newest ``count`` messages that a person sees, in order. Fewer messages are returned if the first
        of them would be results without their calls. Raises InvalidRequest for a negative number."""
        read_count = count
        while True:
            items = await self._store.latest(self.key, read_count)
            shown = [item.message for item in items if not item.message.hidden]
            session = await self._store.info(self.key)
            # The store counts hidden messages too, so more items may have to be read; a session has at most ``head``
            # items.
            if session is None or len(shown) == len(items) or len(shown) >= count or read_count >= session.head:
                return shown[-count:] if count else []
            read_count *= 4

    async def clear(self) -> None:
        """Remove all messages of all branches. The session itself, its title and its bindings to notebooks stay."""
        with suppress(SessionNotFound):
            await self._store.clear(self.key)

    async def fork(self, id: str) -> Chat:
        """Create the conversation ``id`` with the messages of this one, and return it. Raises SessionNotFound if this
        conversation is empty and was never stored, and Conflict if ``id`` exists."""
        target = SessionKey(self.key.namespace, id)
        await self._store.fork(self.key, target)
        return Chat(self._store, target)

    async def undo(self) -> UndoResult | None:
        """Remove the newest turn, a message of the user with everything that follows it, and return a description of
        it; None if there is no turn."""
        return await undo.undo(self._store, self.key)


class Sessions:
    """The conversations of one namespace in a store.

    ``async with Sessions.open(url) as sessions`` closes the store at the end. ``with Sessions.open(url) as sessions``
    is the same for programs without an event loop: the methods of SyncSessions and SyncChat then return results instead
    of coroutines. A store that is passed to the constructor is closed too.
    """

    def __init__(self, store: SessionStore, namespace: str = "local") -> None:
        self.store = store
        self.namespace = namespace

    @classmethod
    def open(cls, url: str, *, namespace: str = "local", durable: bool = False) -> Sessions:
        """Return the conversations in the store that ``url`` names: ``sqlite:PATH``, ``files:PATH``, ``memory:``,
        ``postgresql://USER@HOST/DATABASE``, ``redis://HOST``, ``mongodb://HOST/DATABASE``,
        ``dynamodb://REGION/TABLE`` or ``supabase://KEY@PROJECT.supabase.co``.

        Nothing is opened before the first use. ``durable`` makes every write of a SQLite file wait for the disk;
        without it, a killed process loses nothing, and a power cut loses at most the writes of the last moments. Raises
        InvalidRequest for a URL that names no store of this version.
        """
        return cls(open_store(url, durable=durable), namespace)

    def __getitem__(self, id: str) -> Chat:
        """Return the conversation with this id, which need not exist yet. Raises InvalidRequest unless the id has 1 to
        512 characters and no control characters."""
        return Chat(self.store, SessionKey(self.namespace, id))

    async def delete(self, id: str) -> bool:
        """Delete a conversation with everything that belongs to it, and return whether it existed. Raises SessionBusy
        while an agent runs a turn of it."""
        return await self.store.delete(SessionKey(self.namespace, id))

    async def search(self, text: str, limit: int = 5) -> list[SearchHit]:
        """Return the sessions in which at least one of the words of ``text`` occurs, best first."""
        return await self.store.search(self.namespace, SessionQuery(text, limit))

    async def aclose(self) -> None:
        """Close the store; writes that have begun are finished first. Idempotent."""
        await self.store.aclose()

    async def __aenter__(self) -> Sessions:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __enter__(self) -> SyncSessions:
        self._sync = SyncSessions(self)
        return self._sync

    def __exit__(self, *error: object) -> None:
        self._sync.close()

    # This method is the last one, because in annotations after it the name ``list`` would mean the method.
    async def list(self, limit: int | None = 50) -> list[Session]:
        """Return the sessions, the one that changed last first; a limit of None means all."""
        return await self.store.list(self.namespace, limit)


class SyncChat:
    """``Chat`` for programs without an event loop; ``for message in chat`` reads the messages."""

    def __init__(self, chat: Chat, thread: EventLoopThread) -> None:
        self._chat = chat
        self._thread = thread
        self.key = chat.key

    def add(self, *given: Message, user: str | None = None, assistant: str | None = None) -> None:
        """Append messages, as ``Chat.add`` does."""
        self._thread.run(self._chat.add(*given, user=user, assistant=assistant))

    def __iter__(self) -> Iterator[Message]:
        async def read_all() -> list[Message]:
            return [message async for message in self._chat]

        return iter(self._thread.run(read_all()))

    def last(self, count: int = 1) -> list[Message]:
        """Return the newest messages, as ``Chat.last`` does."""
        return self._thread.run(self._chat.last(count))

    def clear(self) -> None:
        """Remove all messages, as ``Chat.clear`` does."""
        self._thread.run(self._chat.clear())

    def fork(self, id: str) -> SyncChat:
        """Create another conversation with these messages, as ``Chat.fork`` does."""
        return SyncChat(self._thread.run(self._chat.fork(id)), self._thread)

    def undo(self) -> UndoResult | None:
        """Remove the newest turn, as ``Chat.undo`` does."""
        return self._thread.run(self._chat.undo())


class SyncSessions:
    """``Sessions`` for programs without an event loop. The store works in a thread of its own, so that it can also be
    used where a loop is running, as in a notebook; that loop then waits for each result."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._thread = EventLoopThread()

    def __getitem__(self, id: str) -> SyncChat:
        return SyncChat(self._sessions[id], self._thread)

    def delete(self, id: str) -> bool:
        """Delete a conversation, as ``Sessions.delete`` does."""
        return self._thread.run(self._sessions.delete(id))

    def search(self, text: str, limit: int = 5) -> list[SearchHit]:
        """Return the sessions in which at least one of the words of ``text`` occurs, as ``Sessions.search`` does."""
        return self._thread.run(self._sessions.search(text, limit))

    def close(self) -> None:
        """Close the store and end the thread. Idempotent."""
        self._thread.run(self._sessions.aclose())
        self._thread.close()

    # This method is the last one, because in annotations after it the name ``list`` would mean the method.
    def list(self, limit: int | None = 50) -> list[Session]:
        """Return the sessions, as ``Sessions.list`` does."""
        return self._thread.run(self._sessions.list(limit))
