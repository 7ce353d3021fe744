"""The seam between the events of a turn and the answers of a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from agent_kernel.core.events import Event


class Codec(Protocol):
    """One answer. Is fed every event of one turn once, in order; knows neither HTTP nor this server."""

    def begin(self) -> Iterable[bytes]:
        """What a stream begins with, before any event: server-sent events, whole."""
        ...

    def feed(self, event: Event) -> Iterable[bytes]:
        """What a stream says of it: server-sent events, whole. After the last event of the turn the stream has had its
        terminal ones, whatever the turn ended with."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """The answer that is not streamed, once the last event was fed."""
        ...
