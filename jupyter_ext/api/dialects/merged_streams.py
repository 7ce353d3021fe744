"""Merges the events of several turns, which run at the same time, into one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of all generators as they arrive; those of one generator stay in their order. The first error
    ends the stream. At the end all generators are closed.

    Items of several generators are read ahead without a limit; those of a single one are read as they are consumed.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    arrived: asyncio.Queue[T | asyncio.Task[None]] = asyncio.Queue()

    async def forward(stream: AsyncGenerator[T, None]) -> None:
        async with aclosing(stream):
            async for item in stream:
                arrived.put_nowait(item)

    # Each generator runs in one task from its beginning to its end, as time limits inside it demand.
    tasks = [asyncio.create_task(forward(stream)) for stream in streams]
    for task in tasks:
        task.add_done_callback(arrived.put_nowait)
    try:
        running = len(tasks)
        while running:
            next_item = await arrived.get()
            if isinstance(next_item, asyncio.Task):
                running -= 1
                next_item.result()
            else:
                yield next_item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
