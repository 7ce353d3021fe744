"""The protocol between the events of a turn and the responses of a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from agent_kernel.core.events import Event


class Codec(Protocol):
    """Encodes one response. It receives every event of one turn once, in order, and knows neither HTTP nor this
    server."""

    def begin(self) -> Iterable[bytes]:
        """Return the server-sent events at the beginning of a stream, before any event of the turn."""
        ...

    def feed(self, event: Event) -> Iterable[bytes]:
        """Return the server-sent events for one event of the turn. After the turn's last event, the stream has its
        terminal events, however the turn ended."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """Return the response that is not streamed, after the last event."""
        ...
