"""Background tasks are waited for, and forgotten when they have ended."""

from __future__ import annotations

import asyncio
import gc

from agent_kernel.core.background_tasks import BackgroundTasks


async def test_waiting_ends_when_every_task_has_ended_however_it_ends() -> None:
    tasks, ended = BackgroundTasks(), list[str]()

    async def work(name: str, *, fails: bool = False) -> None:
        await asyncio.sleep(0)
        ended.append(name)
        if fails:
            raise ValueError(name)

    failing = asyncio.create_task(work("failing", fails=True))
    for task in (asyncio.create_task(work("a")), failing):
        tasks.add(task)
    await tasks.wait()
    assert sorted(ended) == ["a", "failing"]
    assert isinstance(failing.exception(), ValueError)


async def test_waiting_without_tasks_returns_at_once() -> None:
    async with asyncio.timeout(1):
        await BackgroundTasks().wait()


async def test_a_task_that_nobody_else_holds_runs_to_its_end() -> None:
    tasks, going = BackgroundTasks(), asyncio.Event()
    ended = asyncio.Event()

    async def work() -> None:
        await going.wait()
        ended.set()

    tasks.add(asyncio.create_task(work()))
    await asyncio.sleep(0)
    gc.collect()
    going.set()
    await tasks.wait()
    assert ended.is_set()
