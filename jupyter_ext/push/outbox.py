"""What is on its way to one page, in order, and never more than a little of it.

Events wait with their readers: the next one is taken when the page has room, so a page that reads slowly holds its own
readers up and nothing else. News can not wait: a page that leaves too much of it unread is given up, and so is one that
reads nothing at all. It may come back and go on where it was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

MAX_NEWS = 500
"""Messages that wait to be written."""
STALLED_S = 60.0
"""A page that takes nothing of one message for so long is given up."""
TOO_SLOW = 4008
"""The close code of a page that was given up."""

log = logging.getLogger(__name__)


class PageGone(Exception):
    """Nothing can be said to this page any more."""


class Outbox:
    """``write`` returns when the message has left this process, ``give_up`` closes the connection with a code and a
    reason. Belongs to one event loop."""

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
        self._some = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many messages were not written yet."""
        return len(self._waiting)

    async def send(self, said: Mapping[str, Any]) -> None:
        """Waits until there is room. Raises PageGone."""
        await self._place.acquire()
        if self._closed:
            self._place.release()
            raise PageGone
        self._put(said, held=True)

    def tell(self, said: Mapping[str, Any]) -> None:
        """At once; nothing when the page is gone."""
        if self._closed:
            return
        if len(self._waiting) >= self._max_news:
            self._lose("it did not read what was sent")
            return
        self._put(said, held=False)

    def close(self) -> None:
        """What waits is dropped; whoever waits for room hears that the page is gone."""
        self._closed = True
        self._waiting.clear()
        self._place.release()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()

    def _put(self, said: Mapping[str, Any], *, held: bool) -> None:
        text = (
            json.dumps(said, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
        )  # half a pair of a model
        self._waiting.append((text, held))
        self._some.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._keep_writing(), name="writes to a page")
            self._writer.add_done_callback(self._broken)

    async def _keep_writing(self) -> None:
        while not self._closed:
            await self._some.wait()
            while self._waiting and not self._closed:
                text, held = self._waiting.popleft()
                try:
                    async with asyncio.timeout(self._stalled_s):
                        await self._write(text)
                except TimeoutError:
                    self._lose("it has stopped reading")
                except PageGone:
                    self.close()
                if held:
                    self._place.release()
            self._some.clear()

    def _broken(self, writer: asyncio.Task[None]) -> None:
        """A page whose writer has failed would wait for ever."""
        if not writer.cancelled() and (error := writer.exception()) is not None:
            log.error("a page can not be written to", exc_info=error)
            self._lose("it can not be written to")

    def _lose(self, reason: str) -> None:
        self.close()
        self._give_up(TOO_SLOW, f"The page is too slow: {reason}.")
