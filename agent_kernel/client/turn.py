"""Runs one turn for a program: yields its events as they arrive, runs the program's callbacks, and builds the
result."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from agent_kernel.client.approval import Approve, Decision, Said, ask, decide, decision_of
from agent_kernel.client.client_functions import ClientFunctions
from agent_kernel.client.http import ServerConnection
from agent_kernel.client.output_schema import OutputType
from agent_kernel.client.result import Result, ResultBuilder
from agent_kernel.core.errors import AgentKernelError, NotFound, ServerUnreachable
from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, CallOffered, Event, TextDelta, TurnFinished
from agent_kernel.core.shielded_await import RunningTasks, cancel_tasks
from agent_kernel.core.wire.server_sent_events import EventDecoder
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.core.wire.turn_follower import STORED_HEADER, TurnFollower
from agent_kernel.notebook.server_client import route

# Receives the events of one turn over HTTP, each once and in order. After a lost connection, it opens the
# stream again.


PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
RESUME_S = 60.0
T = TypeVar("T")
CANCEL_S = 10.0
LEFT = "the program that asked stopped listening"


def resume_pauses(resume_s: float) -> Iterator[float]:
    """Yield the pauses, in seconds, before the attempts to open a lost stream again: the values of PAUSES_S, then the
    last value repeatedly. Ends when ``resume_s`` seconds have passed."""
    end = time.monotonic() + resume_s
    for pause in itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1])):
        if time.monotonic() >= end:
            return
        yield pause


async def follow_turn(connection: ServerConnection, follower: TurnFollower) -> AsyncGenerator[Event, None]:
    """Yield the events up to ``turn.finished``. Raises AgentKernelError if the turn cannot be followed to its end."""
    headers = {"Accept": "text/event-stream"}
    while True:
        problem: AgentKernelError = ServerUnreachable("The server closed the stream of events before the turn ended.")
        try:
            async with connection.stream("GET", follower.path, query=follower.query, headers=headers) as (
                answer,
                chunks,
            ):
                if not follower.begin(from_store=STORED_HEADER in answer):
                    continue
                decoder = EventDecoder()
                async for chunk in chunks:
                    for sent in decoder.feed(chunk):
                        if event := follower.accept(sent):
                            yield event
                        if follower.finished:  # a proxy may keep the stream open after the last event
                            return
        except AgentKernelError as error:
            problem = error
        await asyncio.sleep(follower.pause_after(problem))


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A started turn; ``attached`` means that it was already running when this client connected."""

    turn: str
    session: str
    attached: bool = False


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Options for following a turn. ``functions`` and ``approve`` are the callbacks of this program, ``shape`` is the
    type of the answer. With ``leave_running`` the turn continues when the program stops reading its events. After a
    lost connection, the client tries for ``resume_s`` seconds to open the stream again. ``after`` is the number of the
    last event that the program already has."""

    functions: ClientFunctions
    approve: Approve | None = None
    shape: OutputType | None = None
    leave_running: bool = False
    resume_s: float = RESUME_S
    after: int = 0


class Turn:
    """One turn. Iterate over it once to receive its events; the turn begins when the iteration begins.

    Closing the iterator (``break``, ``aclose``, the end of an ``async with``, a cancelled task) stops the turn, unless
    ``leave_running`` is set. ``id`` and ``session`` are empty until the turn has begun. While the iterator is open,
    callbacks run whether or not the program reads events.
    """

    def __init__(
        self, connection: ServerConnection, start: Callable[[], Awaitable[StartedTurn]], terms: FollowOptions
    ) -> None:
        self._connection = connection
        self._start = start
        self._terms = terms
        self._gathered = ResultBuilder(connection, terms.shape)
        self._events: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._starting: asyncio.Task[StartedTurn] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._started: StartedTurn | None = None
        self._closed = False

    @property
    def id(self) -> str:
        """The id of the turn; empty until it has begun."""
        return self._started.turn if self._started else ""

    @property
    def session(self) -> str:
        return self._started.session if self._started else ""

    @property
    def finished(self) -> TurnFinished | None:
        """The final event, or None until it has been received."""
        return self._gathered.finished

    async def begin(self) -> Turn:
        """Start the turn, at most once. Raises the server's error: SessionBusy, InvalidRequest, Forbidden, ..."""
        if self._starting is None:
            self._starting = asyncio.create_task(_await(self._start))
        if self._started is None:
            # The request is shielded from cancellation, so that the id of the turn always arrives and the turn can be
            # stopped.
            self._started = await asyncio.shield(self._starting)
        if self._pump is None and not self._closed:
            follower = TurnFollower(
                self.id,
                self.session,
                after=self._terms.after,
                pauses=partial(resume_pauses, self._terms.resume_s),
            )
            events = follow_turn(self._connection, follower)
            answering = CallbackRunner(self._connection, self._terms, attached=self._started.attached)
            self._pump = asyncio.create_task(_copy_events(events, answering, self._gathered, self._events))
        return self

    async def __aenter__(self) -> Turn:
        return await self.begin()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self._read()

    async def _read(self) -> AsyncGenerator[Event, None]:
        try:
            await self.begin()
            while self.finished is None or not self._events.empty():
                if self._closed:
                    return
                got = await self._events.get()
                if got is None:
                    return
                if isinstance(got, Exception):
                    raise got
                yield got
        finally:
            await self.aclose()

    async def texts(self) -> AsyncIterator[str]:
        """Yield only the model's text, as it arrives."""
        async with aclosing(self._read()) as events:
            async for event in events:
                if isinstance(event.body, TextDelta):
                    yield event.body.text

    async def result(self) -> Result:
        """Wait for the end of the turn and return its result. If the turn failed, the result contains its error.

        Raises OutputInvalid if the answer does not have the requested type, and AgentKernelError if the end cannot be
        received.
        """
        async with aclosing(self._read()) as events:
            async for _ in events:
                pass
        if self.finished is None:
            raise NotFound(
                "This Turn object was closed before the turn ended, so it has no result.",
                hint="Follow the turn with a new object: client.follow(turn.id).",
            )
        return self._gathered.result()

    async def decide(self, request: ApprovalRequired, decision: Said) -> bool:
        """Answer the approval request ``request`` of this turn with ``decision``: a Decision, True, False, or a string
        that denies with this reason. Returns False if the call no longer waits."""
        return await decide(self._connection, request, decision_of(decision))

    async def approve(self, request: ApprovalRequired, remember: str = "once") -> bool:
        return await self.decide(request, Decision.approve(remember))

    async def deny(self, request: ApprovalRequired, message: str = "", remember: str = "once") -> bool:
        return await self.decide(request, Decision.deny(message, remember))

    async def cancel(self, reason: str = STOPPED_BY_USER) -> str:
        """Stop the turn if it runs, and return its state. The answer so far and the effects of its calls are kept."""
        if self._starting is None:
            return ""
        started = await asyncio.shield(self._starting)
        reply = await self._connection.call("POST", route("turns", started.turn, "cancel"), {"reason": reason})
        return str(reply["state"])

    def _may_run(self) -> bool:
        """Return True if the request for the turn has been sent and the server has not refused it."""
        starting = self._starting
        return starting is not None and (not starting.done() or not (starting.cancelled() or starting.exception()))

    async def aclose(self) -> None:
        """Stop reading the events; this stops the turn unless ``leave_running`` is set. Has no effect if the turn has
        ended."""
        if self._closed:
            return
        self._closed = True
        self._events.put_nowait(None)  # another task may wait for an event
        ended = self.finished is not None
        await cancel_tasks(self._pump)
        if not ended and self._may_run() and not self._terms.leave_running:
            with contextlib.suppress(AgentKernelError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await self.cancel(LEFT)


class CallbackRunner:
    """Runs the callbacks of one turn: approvals, and functions of this process."""

    def __init__(self, connection: ServerConnection, terms: FollowOptions, *, attached: bool) -> None:
        self._connection = connection
        self._terms = terms
        self._attached = attached
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._running = RunningTasks()

    def hear(self, event: Event) -> None:
        body = event.body
        if isinstance(body, CallOffered) and self._terms.functions.has(body.name):
            self._running.start(self._terms.functions.run(self._connection, event, body))
        elif isinstance(body, ApprovalRequired) and self._terms.approve is not None:
            self._asked[body.approval] = self._running.start(self._ask(body, self._terms.approve))
        elif isinstance(body, ApprovalResolved) and (task := self._asked.pop(body.approval, None)):
            task.cancel()

    async def aclose(self) -> None:
        await self._running.cancel()

    async def _ask(self, request: ApprovalRequired, approve: Approve) -> None:
        """Let ``approve`` decide an approval request. When a turn is followed from its beginning, its events contain
        requests that have been decided already; those are skipped."""
        if self._attached:
            try:
                await self._connection.call("GET", route("agent", "approvals", request.approval))
            except AgentKernelError:
                return
        await ask(self._connection, request, approve)


async def _copy_events(
    events: AsyncGenerator[Event, None],
    answering: CallbackRunner,
    gathered: ResultBuilder,
    into: asyncio.Queue[Event | Exception | None],
) -> None:
    """Copy events to the queue. This task holds no reference to the Turn object, so that Python can free a Turn that
    the program has dropped."""
    try:
        async with aclosing(events):
            async for event in events:
                gathered.add(event)
                answering.hear(event)
                into.put_nowait(event)
    except Exception as error:  # noqa: BLE001  the reader of the queue raises it
        into.put_nowait(error)
    finally:
        await answering.aclose()


async def _await(start: Callable[[], Awaitable[T]]) -> T:
    return await start()
