"""The events of one turn from the server, each once and in order, across lost connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from agent_kernel.client.http import ServerConnection
from agent_kernel.client.resume_state import ResumeState
from agent_kernel.core.errors import AgentKernelError, Forbidden, NotFound, ServerUnreachable, TokenInvalid
from agent_kernel.core.events import EVENT_TYPES, Event, TurnFinished
from agent_kernel.core.server_sent_events import EventDecoder, ServerEvent
from agent_kernel.notebook.server_client import quote_segment

PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Before each try to follow a lost stream again; then the last one, until ``resume_s`` is over."""
RESUME_S = 60.0
STORED = "X-Agent-Stored"
"""The header of a stream that was made from stored items, whose numbers are not those of the live one."""


class EventFollower:
    """Follows one turn. ``after`` is the number of the last known event. ``resume_s`` is how long the server may be
    unreachable before that is an error."""

    def __init__(
        self, connection: ServerConnection, turn: str, session: str = "", *, after: int = 0, resume_s: float = RESUME_S
    ) -> None:
        self._connection = connection
        self._turn = turn
        self._session = session
        self._after = after
        self._resume_s = resume_s
        self._received = ResumeState()
        self._finished = False
        self._heard = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events up to ``turn.finished``. Raises AgentKernelError if the turn cannot be followed to its
        end."""
        loop = asyncio.get_running_loop()
        lost, until = 0, 0.0
        while True:
            self._heard = False
            problem: AgentKernelError
            try:
                async with aclosing(self._once()) as events:
                    async for event in events:
                        yield event
                if self._finished:
                    return
                problem = ServerUnreachable("The stream of the turn ended early.")
            except ServerUnreachable as error:
                problem = error
            except TokenInvalid:
                raise
            except (NotFound, Forbidden) as error:
                raise _restarted(error) if lost or self._after else error from None
            if self._heard or not lost:
                lost, until = 0, loop.time() + self._resume_s
            if loop.time() >= until:
                raise problem
            await asyncio.sleep(PAUSES_S[min(lost, len(PAUSES_S) - 1)])
            lost += 1

    async def _once(self) -> AsyncGenerator[Event, None]:
        """Read events over one connection."""
        path = f"turns/{quote_segment(self._turn)}/events"
        told = {"session": self._session or None}
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._after)}
        async with self._connection.stream("GET", path, query=told, headers=headers) as (answered, pieces):
            stored = bool(self._after) and STORED in answered
            if not stored:
                async with aclosing(_decode(pieces)) as frames:
                    async for frame in frames:
                        self._heard = True
                        if event := self._live(frame):
                            yield event
                return
        async for event in self._rest(path, told):
            yield event

    def _live(self, frame: ServerEvent) -> Event | None:
        number = int(frame.id) if frame.id.isdecimal() else 0
        if number <= self._after or frame.event not in EVENT_TYPES:
            self._after = max(self._after, number)
            return None  # told already, or announced by a newer server than this version knows
        self._after = number
        event = Event.from_json(json.loads(frame.data))
        return self._taken(event)

    async def _rest(self, path: str, told: dict[str, str | None]) -> AsyncGenerator[Event, None]:
        """Yield what the stored items contain beyond the received events, with continued numbers."""
        headers = {"Accept": "text/event-stream"}
        events: list[Event] = []
        async with self._connection.stream("GET", path, query=told, headers=headers) as (_, pieces):
            async for frame in _decode(pieces):
                if frame.event in EVENT_TYPES:
                    events.append(Event.from_json(json.loads(frame.data)))
        for body in self._received.rest([event.body for event in events]):
            self._after += 1
            last = events[-1]
            yield self._taken(Event(self._after, last.turn, last.session, last.round, last.time, body))

    def _taken(self, event: Event) -> Event:
        self._received.add(event.body)
        self._finished |= isinstance(event.body, TurnFinished)
        return event


async def _decode(pieces: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent, None]:
    decoder = EventDecoder()
    async for piece in pieces:
        for event in decoder.feed(piece):
            yield event


def _restarted(error: AgentKernelError) -> ServerUnreachable:
    lost = ServerUnreachable(
        "The server was restarted and the turn was cut off.",
        hint="What it had done by then is kept in its session, if that is a stored one. Ask again.",
    )
    lost.request_id = error.request_id
    return lost
