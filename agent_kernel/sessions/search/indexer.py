"""A background task that adds new items to the search index."""

from __future__ import annotations

import asyncio
import logging

from agent_kernel.core.errors import StoreError
from agent_kernel.core.seams.session_store import SearchIndexing
from agent_kernel.core.shielded_await import cancel_tasks

log = logging.getLogger(__name__)
EVERY_S = 5.0
PAUSE_S = 0.1
"""Seconds between two steps while items are left to add, so that turns can use the store's thread in between."""
STEP = 500
"""Maximum number of items in one step, which takes about a tenth of a second."""
AGAIN_S = 60.0
"""Seconds to wait after a failed step."""


class SearchIndexer:
    """The background task that adds new items to the search index. ``start`` starts it and ``aclose`` stops it;
    ``aclose`` may also be called if it was never started. After an error of the store the task tries again. Search also
    finds items that are not in the index, only slower."""

    def __init__(self, store: SearchIndexing, *, every_s: float = EVERY_S, again_s: float = AGAIN_S) -> None:
        self._store = store
        self._every_s = every_s
        self._again_s = again_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._keep_indexing(), name="indexing for search")

    async def _keep_indexing(self) -> None:
        pause = self._every_s
        while True:
            await asyncio.sleep(pause)
            pause = await self._step()

    async def _step(self) -> float:
        """Do one step and return the seconds until the next one."""
        try:
            return PAUSE_S if await self._store.fold(STEP) else self._every_s
        except StoreError as error:
            log.warning("new items could not be added to the search index: %s", error)
            return self._again_s

    async def aclose(self) -> None:
        await cancel_tasks(self._task)
