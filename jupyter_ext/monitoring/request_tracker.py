"""Keeps track of the requests in progress, so that the metrics count them, and so that a stopping server waits for
their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol


class RequestHandler(Protocol):
    """The attributes of a request's handler that the tracker reads. ``route`` is the name of the route, not the
    path."""

    route: str

    @property
    def request(self) -> Any: ...

    def get_status(self) -> int: ...


@dataclass(slots=True)
class Requests:
    """The requests of one server that are in progress.

    Use the object in one event loop only. ``on_request_end`` is called at the end of each request with its handler, its
    duration in seconds, and whether its client left early.
    """

    on_request_end: Callable[[RequestHandler, float, bool], None]
    streams: int = 0
    """The number of responses that are being streamed."""
    _open: dict[RequestHandler, float] = field(default_factory=dict)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def began(self, handler: RequestHandler) -> None:
        self._open[handler] = time.monotonic()

    def on_end(self, handler: RequestHandler) -> None:
        self._close(handler, left=False)

    def on_disconnect(self, handler: RequestHandler) -> None:
        self._close(handler, left=True)

    async def wait_until_idle(self) -> None:
        """Wait until no request is open."""
        while self._open:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def _close(self, handler: RequestHandler, *, left: bool) -> None:
        began = self._open.pop(handler, None)
        if began is None:
            return
        self.on_request_end(handler, time.monotonic() - began, left)
        if not self._open:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()
