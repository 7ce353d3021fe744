"""Decodes server-sent events: bytes in, events out, with limits on all sizes. Standard library only.

The libraries that parse such streams (httpx-sse, the SDK of OpenAI) buffer an endless line or event until memory is
full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent_kernel.core.errors import AgentKernelError

MAX_EVENT = 256 << 20
"""Maximum bytes of one event. The largest events are results of calls that contain the bytes of media."""


class ServerEvent(NamedTuple):
    """One server-sent event. ``id`` and ``event`` are empty if the server did not send these fields."""

    id: str
    event: str
    data: str


class EventDecoder:
    """Decodes the bytes of one stream into events. Chunks may have any length, and lines end with LF, CRLF or CR.

    Raises ``error`` for an event of more than ``max_event`` bytes, and for a whole stream of more than ``max_answer``
    bytes (None: no limit).
    """

    def __init__(
        self,
        max_event: int = MAX_EVENT,
        max_answer: int | None = None,
        error: type[AgentKernelError] = AgentKernelError,
    ) -> None:
        self._max_event = max_event
        self._max_answer = max_answer
        self._error = error
        self._total = 0
        self._line = bytearray()
        self._after_cr = False
        self._forget_event()

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that are complete now. Events without data, such as comments, are skipped."""
        if not chunk:
            return
        self._total += len(chunk)
        if self._max_answer is not None and self._total > self._max_answer:
            raise self._error(f"The server's answer has more than {self._max_answer >> 20} MiB; the rest was not read.")
        if self._after_cr:  # the line ended with the CR; an LF would be the second half of a CRLF
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):  # bytes split at LF, CRLF and CR only
            self._line += line
            if self._size + len(self._line) > self._max_event:
                raise self._error(
                    f"The server sent an event of more than {self._max_event >> 20} MiB; the rest was not read."
                )
            if line.endswith((b"\n", b"\r")) and (event := self._end_line()):
                yield event

    def end(self) -> Iterator[ServerEvent]:
        """Call at the end of the stream. Yields the last event if the server did not send a blank line after it."""
        for _ in range(2):
            if event := self._end_line():
                yield event

    def _end_line(self) -> ServerEvent | None:
        """Parse the line that was collected. If it is blank, it completes an event, which is returned; otherwise
        None."""
        line = self._line.rstrip(b"\r\n")
        self._line.clear()
        if line:
            self._size += len(line)
            name, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "id":
                self._id = value
            elif name == "event":
                self._event = value
            return None
        event = ServerEvent(self._id, self._event, "\n".join(self._data)) if self._data else None
        self._forget_event()
        return event

    def _forget_event(self) -> None:
        self._size = 0
        self._id = self._event = ""
        self._data: list[str] = []
