"""Waits for what another task, thread or process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WITHIN_S = 30.0
PAUSE_S = 0.005


async def until(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Return when ``holds`` returns something true; other tasks run meanwhile."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(PAUSE_S)


def block_until(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """The same without an event loop."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(PAUSE_S)
