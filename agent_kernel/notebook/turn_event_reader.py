"""Reads the events of one turn over the kernel's HTTP client. One thread reads them, and another thread may stop the
reading."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
import urllib.parse
from collections.abc import Iterator

from agent_kernel.core.errors import AgentKernelError, Conflict
from agent_kernel.core.events import Event
from agent_kernel.core.wire.turn_follower import STORED_HEADER, TurnFollower
from agent_kernel.notebook.server_client import ServerClient, describe_unreachable

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses in seconds before each attempt to open a lost stream again. Together they exceed the few seconds that a server
needs to restart."""


class TurnEvents:
    """Reads the events of one turn. An object can be read only once. The constructor has the arguments of
    TurnFollower."""

    def __init__(
        self, turn: str, session: str = "", *, after: int = 0, stored: bool = False, relays: bool = False
    ) -> None:
        self.left = False
        self._follower = TurnFollower(
            turn, session, after=after, stored=stored, relays=relays, pauses=lambda: iter(PAUSES_S)
        )
        self._connection: http.client.HTTPConnection | None = None

    def read(self, server: ServerClient) -> Iterator[Event]:
        """Yield the events up to ``turn.finished``, or until ``leave`` is called. Raises AgentKernelError if the turn
        cannot be followed to its end."""
        follower = self._follower
        while True:
            path = f"{follower.path}?{urllib.parse.urlencode(follower.query)}"
            problem: AgentKernelError
            try:
                with server.stream("GET", path, opened=self._set_connection) as (headers, events):
                    if not follower.begin(from_store=STORED_HEADER in headers):
                        continue
                    for sent in events:
                        if self.left:
                            return
                        if event := follower.accept(sent):
                            yield event
                        if follower.finished:
                            return
                problem = describe_unreachable(EOFError("the stream ended early"))
            except (OSError, http.client.HTTPException) as error:
                problem = describe_unreachable(error)
            except AgentKernelError as error:
                problem = error
            time.sleep(follower.pause_after(problem))

    def leave(self) -> None:
        """Close the stream; the turn continues. Any thread may call this."""
        self.left = True
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _set_connection(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        if self.left:
            raise Conflict("This kernel has stopped following the events of this turn. The turn itself continues.")
