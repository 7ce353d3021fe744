"""Writes the frames of a stream to a client, keeps an idle stream open, and ends one whose token was revoked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from jupyter_server.base.handlers import APIHandler
from tornado.iostream import StreamClosedError

KEEP_ALIVE_S = 10.0
LOOK_AGAIN_S = 2.0
"""Seconds between two checks of whether the token of a stream is still valid."""


class StreamWriter:
    """Writes ``frames`` as they arrive to the client of ``handler``, and ``keep_alive`` after KEEP_ALIVE_S seconds
    without a frame, so that proxies and clients do not close the stream.

    ``is_token_valid`` is called every LOOK_AGAIN_S seconds; it is None for a client without a token that can be
    revoked. When it returns False, the connection is closed, as if the client had disconnected.
    """

    def __init__(
        self,
        handler: APIHandler,
        frames: AsyncGenerator[bytes, None],
        keep_alive: bytes,
        is_token_valid: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._handler = handler
        self._keep_alive = keep_alive
        self._is_token_valid = is_token_valid
        self._written = time.monotonic()
        self._task = asyncio.create_task(self._write(frames))

    def stop(self) -> None:
        """Stop writing, because the client has disconnected."""
        self._task.cancel()

    async def has_ended_in_order(self) -> bool:
        """Wait for the end of the stream. Return True if the response can be finished, and False if the client has
        disconnected. An unexpected error of ``frames`` is logged and ends the stream."""
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return False
        error = self._task.exception()
        if isinstance(error, StreamClosedError):
            return False
        if error is not None:
            self._handler.log.error("a stream ended with an unexpected error", exc_info=error)
        return True

    async def _write(self, frames: AsyncGenerator[bytes, None]) -> None:
        await self._handler.flush()
        beat = asyncio.create_task(self._beat())
        try:
            async with aclosing(frames):
                async for frame in frames:
                    self._handler.write(frame)
                    await self._handler.flush()
                    self._written = time.monotonic()
        finally:
            beat.cancel()

    async def _beat(self) -> None:
        """Write ``keep_alive`` while there are no frames, and close the connection when the token is revoked."""
        while True:
            if self._is_token_valid is not None and not await self._is_token_valid():
                self._handler.request.connection.stream.close()  # type: ignore[union-attr]  # it is HTTP/1
                return
            idle = time.monotonic() - self._written
            if idle >= KEEP_ALIVE_S:
                self._handler.write(self._keep_alive)
                self._written, idle = time.monotonic(), 0.0
                with contextlib.suppress(StreamClosedError):  # ``stop`` ends the writer
                    await self._handler.flush()
            wait_s = KEEP_ALIVE_S - idle
            await asyncio.sleep(wait_s if self._is_token_valid is None else min(wait_s, LOOK_AGAIN_S))
