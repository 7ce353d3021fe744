"""Tests the stream that merges the items of several generators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from jupyter_ext.api.dialects.merged_streams import merge


class Source:
    """Yields ``items`` after a pause each, then raises ``error`` if there is one."""

    def __init__(self, items: Sequence[int], pause_s: float = 0.0, error: Exception | None = None) -> None:
        self.items, self.pause_s, self.error = items, pause_s, error
        self.is_closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            async with asyncio.timeout(60):
                for item in self.items:
                    await asyncio.sleep(self.pause_s)
                    yield item
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed = True


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_all_items_arrive_and_those_of_one_source_in_order(count: int) -> None:
    sources = [Source(range(10 * number, 10 * number + 5), 0.001 * (number + 1)) for number in range(count)]
    items = [item async for item in merge([source.stream() for source in sources])]
    assert sorted(items) == [item for source in sources for item in source.items]
    for source in sources:
        assert [item for item in items if item in source.items] == list(source.items)


async def test_a_slow_source_holds_up_no_other() -> None:
    slow, fast = Source([1], 30), Source([2, 3])
    async with aclosing(merge([slow.stream(), fast.stream()])) as items:
        assert [await anext(items), await anext(items)] == [2, 3]
    assert slow.is_closed


@pytest.mark.parametrize("others", [0, 2])
async def test_the_first_error_ends_the_stream_and_closes_the_sources(others: int) -> None:
    sources = [Source([1], error=ValueError("broken")), *(Source([2], 30) for _ in range(others))]
    items = merge([source.stream() for source in sources])
    assert await anext(items) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(items)
    assert all(source.is_closed for source in sources)
