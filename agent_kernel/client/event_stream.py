"""Receives the events of one turn over HTTP, each once and in order. After a lost connection, it opens the stream
again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Iterator

from agent_kernel.client.http import ServerConnection
from agent_kernel.core.errors import AgentKernelError, ServerUnreachable
from agent_kernel.core.events import Event
from agent_kernel.core.wire.server_sent_events import EventDecoder
from agent_kernel.core.wire.turn_follower import STORED_HEADER, TurnFollower

PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
RESUME_S = 60.0


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
