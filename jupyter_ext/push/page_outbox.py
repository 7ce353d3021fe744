"""Queues the messages to one page and sends them in order. The queue has a limited length.

Events of turns are read one by one: the next event is taken when the queue has room, so a slow page delays only its own
readers. Notifications cannot wait. A page that leaves too many of them unread, or reads nothing at all, is
disconnected; it can reconnect and continue from where it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

MAX_NEWS = 500
"""Maximum number of messages that wait to be written."""
STALLED_S = 60.0
"""Seconds after which a page that has read nothing of a message is disconnected."""
TOO_SLOW = 4008
"""The WebSocket close code for a page that reads its messages too slowly."""

log = logging.getLogger(__name__)


class PageGone(Exception):
    """Raised if the page is disconnected."""


class Outbox:
    """The queue of messages to one page.

    ``write`` sends a message and returns when the message has left this process. ``give_up`` closes the connection with
    a code and a reason. Use the object in one event loop only.
    """

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        give_up: Callable[[int, str], None],
        *,
        max_news: int = MAX_NEWS,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._write = write
        self._give_up = give_up
        self._max_news = max_news
        self._stalled_s = stalled_s
        self._waiting: deque[tuple[str, bool]] = deque()
        self._place = asyncio.Semaphore(1)
        self._not_empty = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """The number of messages that are not written yet."""
        return len(self._waiting)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Wait until the queue has room, then queue ``message``. Raises PageGone."""
        await self._place.acquire()
        if self._closed:
            self._place.release()
            raise PageGone
        self._put(message, held=True)

    def send_now(self, message: Mapping[str, Any]) -> None:
        """Queue ``message`` at once; do nothing if the page is gone."""
        if self._closed:
            return
        if len(self._waiting) >= self._max_news:
            self._give_up_page("it did not read what was sent")
            return
        self._put(message, held=False)

    def close(self) -> None:
        """Drop the queued messages. Callers that wait for room get PageGone."""
        self._closed = True
        self._waiting.clear()
        self._place.release()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()

    def _put(self, message: Mapping[str, Any], *, held: bool) -> None:
        # A model can produce half of a surrogate pair, which UTF-8 cannot encode.
        text = json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
        self._waiting.append((text, held))
        self._not_empty.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._keep_writing(), name="writes to a page")
            self._writer.add_done_callback(self._on_writer_done)

    async def _keep_writing(self) -> None:
        while not self._closed:
            await self._not_empty.wait()
            while self._waiting and not self._closed:
                text, held = self._waiting.popleft()
                try:
                    async with asyncio.timeout(self._stalled_s):
                        await self._write(text)
                except TimeoutError:
                    self._give_up_page("it has stopped reading")
                except PageGone:
                    self.close()
                if held:
                    self._place.release()
            self._not_empty.clear()

    def _on_writer_done(self, writer: asyncio.Task[None]) -> None:
        """Disconnect a page whose writer has failed; it would wait forever otherwise."""
        if not writer.cancelled() and (error := writer.exception()) is not None:
            log.error("messages could not be sent to a page", exc_info=error)
            self._give_up_page("it cannot be written to")

    def _give_up_page(self, reason: str) -> None:
        self.close()
        self._give_up(TOO_SLOW, f"The page is too slow: {reason}.")
