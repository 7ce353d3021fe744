"""Tests background work of a session: one task at a time, and why it ended."""

from __future__ import annotations

import asyncio

import pytest

from agent_kernel.core.errors import Conflict
from agent_kernel.core.session import SessionKey
from agent_kernel.turn.post_turn_tasks import BackgroundTasks

KEY = SessionKey("local", "s")


async def wait_forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_turn_that_begins_is_named_as_the_cause(waiting: bool) -> None:
    tasks = BackgroundTasks()
    if waiting:
        tasks.start(KEY, wait_forever())
    call = asyncio.create_task(tasks.run_next(KEY, wait_forever))
    await asyncio.sleep(0.1)
    await tasks.give_way(KEY)
    with pytest.raises(Conflict, match="because a turn of this session began"):
        await call


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_server_that_stops_is_named_as_the_cause(waiting: bool) -> None:
    tasks = BackgroundTasks()
    if waiting:
        tasks.start(KEY, wait_forever())
    call = asyncio.create_task(tasks.run_next(KEY, wait_forever))
    await asyncio.sleep(0.1)
    await tasks.aclose()
    with pytest.raises(Conflict, match="The server is shutting down"):
        await call
