"""Parses the stream of a server: server-sent events in, JSON objects out, with limits on all sizes.

No library is used: those that parse such streams (httpx-sse, the SDK of OpenAI) buffer an endless line or event until
memory is full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import EngineError

MAX_EVENT = 8 << 20
"""Bytes of one event. Servers that send a call at once put all of its code into one event."""
MAX_ANSWER = 64 << 20
"""Bytes of one answer."""
DONE = "[DONE]"
END: Mapping[str, Any] = MappingProxyType({})
"""Stands for the server's end marker. It is recognized by identity, so that no server can send it as data."""


class EventDecoder:
    """Decodes bytes as they arrive; line ends may be LF, CRLF or CR. Raises EngineError beyond the limits."""

    def __init__(self, max_event: int = MAX_EVENT, max_answer: int = MAX_ANSWER) -> None:
        self._max_event = max_event
        self._max_answer = max_answer
        self._rest = bytearray()
        self._searched = 0
        self._data: list[str] = []
        self._size = 0
        self._total = 0

    def feed(self, raw: bytes) -> Iterator[str]:
        """Yield the data of each event that is complete now."""
        self._total += len(raw)
        if self._total > self._max_answer:
            raise EngineError(f"The server's answer has more than {self._max_answer >> 20} MiB; it was not read on.")
        self._rest += raw
        while (line := self._next_line()) is not None:
            yield from self._line(line)
        if len(self._rest) > self._max_event:
            raise self._too_large()

    def end(self) -> Iterator[str]:
        """Yield the last event of a server that closes without a blank line."""
        if self._rest:
            yield from self._line(bytes(self._rest))
            self._rest.clear()
        yield from self._line(b"")

    def _next_line(self) -> bytes | None:
        rest = self._rest
        ends = [at for mark in (b"\n", b"\r") if (at := rest.find(mark, self._searched)) >= 0]
        if not ends:
            self._searched = len(rest)
            return None
        at = min(ends)
        after = at + 1
        if rest[at] == 0x0D:
            if after == len(rest):  # the LF of a CRLF may be still on its way
                self._searched = at
                return None
            after += rest[after] == 0x0A
        line = bytes(rest[:at])
        del rest[:after]
        self._searched = 0
        return line

    def _line(self, line: bytes) -> Iterator[str]:
        if not line:
            if self._data:
                yield "\n".join(self._data)
            self._data, self._size = [], 0
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            return  # comments, ids, event names
        self._size += len(value)
        if self._size > self._max_event:
            raise self._too_large()
        self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))

    def _too_large(self) -> EngineError:
        return EngineError(f"The server sent an event of more than {self._max_event >> 20} MiB; it was not read on.")


def parse_object(data: str) -> Mapping[str, Any]:
    """Parse a JSON object. Raises EngineError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise EngineError(
            "The server sent what is no JSON object.",
            hint="Is the url that of an OpenAI-compatible server? It commonly ends in /v1.",
        )
    return value
