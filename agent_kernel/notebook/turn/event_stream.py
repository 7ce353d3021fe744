"""A turn's events, read by a thread and handed to the main thread in order.

The thread does HTTP and nothing else. It keeps the stream drained while the main thread runs code or waits for a
person, and an interrupt, which always hits the main thread, can not tear a half-read event.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from agent_kernel.core.errors import AgentKernelError, ServerUnreachable
from agent_kernel.core.events import Event, TurnFinished
from agent_kernel.notebook.server_client import ServerClient

TICK_S = 0.1


class FollowedStream:
    """``with Following(server, turn) as events:``; leaving closes the stream, not the turn. ``stored``: the session of
    a turn that is shown as it was kept."""

    def __init__(self, server: ServerClient, turn: str, stored: str = "") -> None:
        self._server = server
        self._turn = turn
        self._stored = stored
        self._events: queue.SimpleQueue[Event | AgentKernelError] = queue.SimpleQueue()
        self._connection: http.client.HTTPConnection | None = None
        self._left = False
        self._thread = threading.Thread(target=self._read, name=f"agent-events-{turn}", daemon=True)

    def __enter__(self) -> FollowedStream:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[Event | None]:
        """Events up to ``turn.finished``; None each TICK_S seconds without one. Raises AgentKernelError."""
        while True:
            event = self._next(TICK_S)
            yield event
            if event is not None and isinstance(event.body, TurnFinished):
                return

    def rest(self, seconds: float) -> Iterator[Event]:
        """What still comes within ``seconds``; ends without an error when nothing more can come."""
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
            found = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, AgentKernelError):
            raise found
        return found

    def _read(self) -> None:
        try:
            for event in self._server.events(self._turn, stored=self._stored, opened=self._opened):
                self._events.put(event)
        except AgentKernelError as error:
            self._events.put(error)
        except Exception as error:  # noqa: BLE001  a thread that dies silently would leave the cell waiting for ever
            self._events.put(ServerUnreachable(f"The turn can not be followed ({type(error).__name__}: {error})."))

    def _opened(self, connection: http.client.HTTPConnection) -> None:
        if self._left:
            raise ServerUnreachable("Nobody follows this turn any more.")
        self._connection = connection
