"""Measures how long saving a sidecar blocks the event loop that all users of a server share.

Run alone on the machine: make bench ARGS="-k sidecar_save".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from statistics import median

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.contract_tests.fixtures import calls, result
from agent_kernel.sessions.store.sqlite import SqliteStore
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.sidecar_writer import Sidecars
from tests.jupyter_ext.notebooks.test_sidecar_writer import NoSessions

KEY = SessionKey("local", "s1")
TURNS = 500
RESULT = "0123456789 " * 900
RUNS = 5
SLEEP_S = 0.001
RECORD = {"tools": ["python", "shell", "read_file"], "permission": "auto", "local": True, "finish": "stop"}


class LoopWatch:
    """Measures delays of the event loop. ``longest`` is the longest delay of a timer in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            due = time.perf_counter() + SLEEP_S
            await asyncio.sleep(SLEEP_S)
            self.longest = max(self.longest, time.perf_counter() - due)


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[tuple[SqliteStore, Sidecars, Path]]:
    root = folder / "notebooks"
    root.mkdir()
    (root / "a.ipynb").write_text("{}")
    settings = Settings(data_dir=folder / "data")
    async with aclosing(SqliteStore(folder / "data" / "sessions.db")) as store:
        for at in range(TURNS):
            said = [user(f"question {at}"), calls("c1"), result("c1", RESULT), assistant(f"answer {at}")]
            await store.add_turn(Turn(f"t{at}", KEY, record=RECORD), said)
        notebooks = Notebooks(store, NoSessions(), str(root))
        await notebooks.bind(KEY, "a.ipynb")
        yield store, Sidecars(store, notebooks, settings, lambda path: False), root


async def save(sidecars: Sidecars, root: Path) -> tuple[float, float, float]:
    """Save once. Return the longest delay of the loop, the CPU seconds of its thread, and the seconds until the end."""
    watch = LoopWatch()
    watching = asyncio.create_task(watch.watch())
    await asyncio.sleep(0.01)
    started, cpu = time.perf_counter(), time.thread_time()
    sidecars.on_saved("local", str(root / "a.ipynb"))
    await sidecars.write_marked()
    spent, total = time.thread_time() - cpu, time.perf_counter() - started
    watching.cancel()
    await asyncio.wait([watching])
    return watch.longest, spent, total


async def test_a_save_of_five_megabytes_leaves_the_loop_free_and_an_unchanged_one_costs_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as (store, sidecars, root):
        changed, unchanged = list[tuple[float, float, float]](), list[tuple[float, float, float]]()
        for run in range(RUNS):
            await store.rename(KEY, f"title {run}")
            changed.append(await save(sidecars, root))
            unchanged.append(await save(sidecars, root))
        size = (root / "a.agent.json").stat().st_size
    delay, cpu, total = (median(column) for column in zip(*changed, strict=True))
    _, _, idle = (median(column) for column in zip(*unchanged, strict=True))
    print(
        f"\n{size / 1e6:.1f} MB: loop delayed {delay * 1e3:.1f} ms, its CPU {cpu * 1e3:.1f} ms, of {total * 1e3:.0f} ms"
    )
    print(f"unchanged: {idle * 1e3:.1f} ms, 1/{total / idle:.0f} of a write")
    assert size >= 5_000_000
    assert cpu <= 0.030
    assert delay <= 0.030
    assert idle <= total / 20
