"""Tests that the indexer adds new items by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey, SessionQuery, Turn
from agent_kernel.sessions.search.indexer import STEP, SearchIndexer
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.tables import search_texts


@pytest.fixture
async def memory() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    yield store
    await store.aclose()


async def until_folded(store: MemoryStore) -> None:
    async with asyncio.timeout(20):
        while await store._database.read(search_texts.count_left):
            await asyncio.sleep(0.01)


async def test_what_is_said_is_folded_soon_and_again(memory: MemoryStore) -> None:
    indexer = SearchIndexer(memory, every_s=0.01)
    indexer.start()
    indexer.start()
    for turn in ("t1", "t2"):
        await memory.add_turn(Turn(turn, SessionKey("local", "s")), [user("garnet")] * (STEP + 1))
        await until_folded(memory)
    await indexer.aclose()
    assert len(await memory.search("local", SessionQuery("garnet"))) == 1


async def test_closing_what_was_not_started_is_harmless(memory: MemoryStore) -> None:
    await SearchIndexer(memory).aclose()


class Failing:
    """An index that fails once, as with a full disk."""

    def __init__(self) -> None:
        self.calls = 0
        self.succeeded = asyncio.Event()

    async def fold(self, limit: int = 1000) -> int:
        self.calls += 1
        if self.calls == 1:
            raise StoreError("No space left.")
        self.succeeded.set()
        return 0


async def test_a_store_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing()
    indexer = SearchIndexer(store, every_s=0.001, again_s=0.001)
    with caplog.at_level(logging.WARNING):
        indexer.start()
        async with asyncio.timeout(20):
            await store.succeeded.wait()
    await indexer.aclose()
    assert "No space left" in caplog.text
