"""Reads the events of a turn in a thread and hands them to the main thread in order.

The thread sends and receives HTTP only. It keeps reading while the main thread runs code or waits for the user. An
interrupt always hits the main thread, so it cannot break off the reading in the middle of an event.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from agent_kernel.core.errors import AgentKernelError, ServerUnreachable
from agent_kernel.core.events import Event, TurnFinished
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn_event_reader import TurnEvents

TICK_S = 0.1


class FollowedStream:
    """The events of a turn, as a context manager: ``with FollowedStream(server, turn) as events:``. Leaving the context
    closes the stream; the turn continues. If the events come from a stored turn that is displayed again, ``stored`` is
    the id of its session; otherwise it is ""."""

    def __init__(self, server: ServerClient, turn: str, stored: str = "") -> None:
        self._server = server
        self._reader = TurnEvents(turn, stored, stored=bool(stored))
        self._events: queue.SimpleQueue[Event | AgentKernelError] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name=f"agent-events-{turn}", daemon=True)

    def __enter__(self) -> FollowedStream:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.leave()

    def __iter__(self) -> Iterator[Event | None]:
        """Yield the events up to ``turn.finished``. Yields None whenever no event arrives for TICK_S seconds. Raises
        AgentKernelError."""
        while True:
            event = self._next(TICK_S)
            yield event
            if event is not None and isinstance(event.body, TurnFinished):
                return

    def rest(self, seconds: float) -> Iterator[Event]:
        """Yield the events that still arrive within ``seconds``. An error of the stream ends the iteration and is not
        raised."""
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                event = self._next(remaining)
            except AgentKernelError:
                return
            if event is None:
                return
            yield event
            if isinstance(event.body, TurnFinished):
                return

    def _next(self, seconds: float) -> Event | None:
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(event, AgentKernelError):
            raise event
        return event

    def _read(self) -> None:
        try:
            for event in self._reader.read(self._server):
                self._events.put(event)
        except AgentKernelError as error:
            self._events.put(error)
        except Exception as error:  # noqa: BLE001  if the thread died silently, the cell would wait forever
            self._events.put(
                ServerUnreachable(
                    f"The turn cannot be followed ({type(error).__name__}: {error}).",
                    hint="%agent show displays its answer once it has ended.",
                )
            )
