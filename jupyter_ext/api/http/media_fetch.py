"""Fetch all remote media of one request concurrently, within one limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agent_kernel.core.errors import FetchFailed
from agent_kernel.core.net.fetch import Fetcher, FetchLimits, FetchResult


async def fetch_all(fetcher: Fetcher, urls: Sequence[str], bounds: FetchLimits, *, purpose: str) -> list[FetchResult]:
    """Return the media in the order of ``urls``. ``bounds.bytes`` limits all of them together; the other bounds
    apply to each. The first failure cancels the others. Raises the errors of ``Fetcher.get``."""
    left = bounds.bytes

    async def fetch_one(url: str) -> FetchResult:
        nonlocal left
        held: list[bytes] = []
        async with fetcher.open(url, bounds, purpose=purpose) as (answer, pieces):
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise FetchFailed(f"The media of a request can have at most {bounds.bytes >> 20} MiB together.")
                held.append(piece)
        return replace(answer, data=b"".join(held))

    tasks = [asyncio.ensure_future(fetch_one(url)) for url in urls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
