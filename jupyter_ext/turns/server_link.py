"""Connects this server to the other servers of a shared store. The connection carries questions about turns, answers to
them, and the messages of topics.

A question goes to all servers, and the server that runs the turn answers it. This module does not know the content of
questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

from agent_kernel.core.errors import AgentKernelError, ServerStopping, from_json
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.session import new_id
from agent_kernel.sessions.log.message_bus import (
    BusMessage,
    EventCount,
    EventCounter,
    MessageBus,
    Post,
    SharedValue,
    Topic,
    change_value,
)

P = ParamSpec("P")
T = TypeVar("T")
QUESTIONS: Topic = ("", "questions")
KEEP_S = 10.0
"""Seconds for which a question or an answer is kept for a server that does not read at the moment."""
WAIT_S = 1.0
"""Seconds between two reads of a database that sends no notifications."""
RETRY_S = 1.0
MOST_KNOWN = 10_000
"""Number of questions that are remembered, so that none of them is answered twice."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question about a turn. ``action`` names the request of the asking server, and ``body`` are its parameters as
    JSON. ``namespace`` is that of the caller, whom the asking server has authenticated."""

    namespace: str
    turn: str
    action: str
    body: Mapping[str, Any]


Answerer: TypeAlias = Callable[[ServerQuestion], Awaitable[Mapping[str, Any] | None]]
"""Answers a question; None: the turn does not run on this server. Raises AgentKernelError, which the asker gets."""


class ServerLink:
    """Connects one server with the other servers of its store, on one event loop. ``start`` begins to receive
    messages; ``aclose`` stops everything.

    One thread receives and another one sends, because the bus blocks. While the database cannot be reached, ``send``
    and ``ask`` raise StoreError; the link works again when the database does.
    """

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._id = new_id("server")
        self._inbox: Topic = ("", f"server/{self._id}")
        self._lock = threading.Lock()
        self._seen: dict[Topic, int] = {QUESTIONS: 0, self._inbox: 0}
        self._listeners: dict[Topic, Callable[[bytes], None]] = {}
        self._asked: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._known = RecentEntries[str, None](MOST_KNOWN)
        self._answering: set[asyncio.Task[None]] = set()
        self._outgoing: list[tuple[Sequence[Post], asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="messages to other servers")
        self._receiver: threading.Thread | None = None
        self._closing = threading.Event()
        self._failing = self._is_closed = False
        self.answer: Answerer = _answer_nothing

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._receiver = threading.Thread(
            target=self._receive, args=(loop,), name="messages of other servers", daemon=True
        )
        self._receiver.start()

    async def aclose(self) -> None:
        for task in [*self._answering]:
            task.cancel()
        self._closing.set()
        if self._receiver is not None:
            with contextlib.suppress(AgentKernelError):  # without this message, the thread ends only after WAIT_S
                await self.send([Post(self._inbox, b"", KEEP_S)])
            await asyncio.to_thread(self._receiver.join)
        if self._sending is not None:
            await asyncio.wait([self._sending])
        self._is_closed = True
        self._sender.shutdown()
        await asyncio.to_thread(self._bus.close)

    async def send(self, posts: Sequence[Post]) -> None:
        """Send messages in order. Messages that are passed while the bus is busy are sent together. Raises
        StoreError.
        """
        done = asyncio.get_running_loop().create_future()
        self._outgoing.append((posts, done))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_outgoing(), name="messages to other servers")
        await done

    async def ask(
        self, namespace: str, turn: str, action: str, body: Mapping[str, Any], within_s: float
    ) -> Mapping[str, Any] | None:
        """Ask the server that runs the turn; None if no server has answered within ``within_s`` seconds. Raises the
        error of that server, and StoreError."""
        id = new_id("question")
        question = {"id": id, "from": self._id, "namespace": namespace, "turn": turn, "action": action, "body": body}
        answered = self._asked[id] = asyncio.get_running_loop().create_future()
        try:
            await self.send([Post(QUESTIONS, json.dumps(question).encode(), KEEP_S)])
            async with asyncio.timeout(within_s):
                answer = await answered
        except TimeoutError:
            return None
        finally:
            del self._asked[id]
        if "error" in answer:
            raise from_json(answer["error"])
        result: Mapping[str, Any] = answer["result"]
        return result

    async def get_value(self, namespace: str, name: str) -> SharedValue | None:
        """Return a value that the servers share, as ``MessageBus.get_value`` does. Raises StoreError."""
        return await self._run(self._bus.get_value, namespace, name)

    async def swap_value(
        self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float
    ) -> bool:
        """Write a value that the servers share, as ``MessageBus.swap_value`` does. Raises StoreError."""
        return await self._run(self._bus.swap_value, namespace, name, expect, value, keep_s)

    async def change_value(
        self, namespace: str, name: str, change: Callable[[bytes | None], bytes | None], keep_s: float
    ) -> None:
        """Change a value that the servers share, as ``message_bus.change_value`` does. ``change`` is called in the
        thread that sends. Raises StoreError."""
        await self._run(change_value, self._bus, namespace, name, change, keep_s)

    async def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        """Count an event on all servers, as ``MessageBus.count_event`` does. Raises StoreError."""
        return await self._run(self._bus.count_event, event, counters, window_s)

    async def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        """Count events as if they happened now, as ``MessageBus.renew_events`` does. Raises StoreError."""
        await self._run(self._bus.renew_events, counted, window_s)

    async def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        """Undo the counting of an event, as ``MessageBus.uncount_event`` does. Raises StoreError."""
        await self._run(self._bus.uncount_event, event, counters)

    def subscribe(self, topic: Topic, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call ``listener`` with the messages of a topic, from the oldest stored one on. Return a function that stops
        this.

        The thread that receives messages waits only for messages of the topics that it knew when it began to wait. It
        reads a new topic after it has received another message, at the latest after WAIT_S. To have the topic read at
        once, call ``ask`` after ``subscribe``: the answer of the other server is such a message.
        """
        self._listeners[topic] = listener
        with self._lock:
            self._seen[topic] = 0

        def end() -> None:
            if self._listeners.get(topic) is listener:
                del self._listeners[topic]
                with self._lock:
                    del self._seen[topic]

        return end

    async def _run(self, work: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
        """Run ``work``, a blocking call of a method of the message bus, in the thread for sending. Raises StoreError
        if the database does not answer, and ServerStopping after ``aclose``."""
        if self._is_closed:
            raise ServerStopping("This server is stopping, so it exchanges no more messages with other servers.")
        call = functools.partial(work, *given, **options)
        return await asyncio.get_running_loop().run_in_executor(self._sender, call)

    async def _send_outgoing(self) -> None:
        while self._outgoing:
            batch, self._outgoing = self._outgoing, []
            posts = [post for posts, _ in batch for post in posts]
            sending = asyncio.ensure_future(self._run(self._bus.send, posts))
            await asyncio.wait([sending])
            error = sending.exception()
            for _, done in batch:
                if not done.done():
                    done.set_result(None) if error is None else done.set_exception(error)
        self._sending = None

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive until the link is closed. Runs in a thread of its own."""
        while not self._closing.is_set():
            with self._lock:
                seen = dict(self._seen)
            try:
                messages = self._bus.receive(seen, WAIT_S)
            except AgentKernelError as error:
                if not self._failing:
                    log.warning("messages of other servers cannot be read at the moment: %s", error)
                self._failing = True
                self._closing.wait(RETRY_S)
                continue
            self._failing = False
            with self._lock:
                for message in messages:
                    if message.topic in self._seen:
                        self._seen[message.topic] = message.position
            if messages:
                loop.call_soon_threadsafe(self._dispatch, messages)

    def _dispatch(self, messages: Sequence[BusMessage]) -> None:
        for message in messages:
            try:
                if message.body:
                    self._handle(message)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("a message of another server cannot be read and is left out: %r", error)

    def _handle(self, message: BusMessage) -> None:
        """Handle a received message. Raises KeyError, TypeError or ValueError for a message that no server of this
        version sends.
        """
        if message.topic == QUESTIONS:
            self._begin_answer(json.loads(message.body))
        elif message.topic == self._inbox:
            answer = json.loads(message.body)
            waiting = self._asked.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        elif listener := self._listeners.get(message.topic):
            listener(message.body)

    def _begin_answer(self, question: Mapping[str, Any]) -> None:
        if question["from"] == self._id or question["id"] in self._known:
            return
        self._known[question["id"]] = None
        task = asyncio.create_task(self._answer(question), name=f"answers {question['id']}")
        self._answering.add(task)
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a question of another server could not be answered", exc_info=error)

    async def _answer(self, question: Mapping[str, Any]) -> None:
        server_question = ServerQuestion(question["namespace"], question["turn"], question["action"], question["body"])
        answer: dict[str, Any] = {"id": question["id"]}
        try:
            result = await self.answer(server_question)
            if result is None:
                return
            answer["result"] = result
        except AgentKernelError as error:
            answer["error"] = error.to_json()
        await self.send([Post(("", f"server/{question['from']}"), json.dumps(answer).encode(), KEEP_S)])


async def _answer_nothing(question: ServerQuestion) -> None:
    """Return no answer, as a server without turns does."""
