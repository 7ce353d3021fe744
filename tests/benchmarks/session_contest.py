"""Measures one session store in one task, in a process of its own: ``python session_contest.py CONTESTANT TASK
DIRECTORY [N]``.

Prints a JSON object. Runs in three environments (ours, openai-agents, selectools), which have different contestants:
see ``session_contestants.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.session_contestants import CONTESTANTS, Ours, text

LATER = 10_000_000
"""The number of the first message behind those that a session was filled with."""
TURNS, BLOCKS = 30, 6
"""Repetitions of one figure."""


def prepare(numbers: Iterable[int]) -> None:
    """Generate the texts before the measurement, so that no figure includes the time for it."""
    for n in numbers:
        text(n)


async def time_call(work: Callable[[int], Awaitable[Any]]) -> dict[str, float]:
    """Return the milliseconds of one call, as processor time and as wall-clock time.

    The processor time is the lowest of the means of BLOCKS blocks: its clock is too coarse for one call, and other load
    on the machine only increases it. The wall-clock time is the median. Slow work is repeated less often.
    """
    start = time.perf_counter()
    await work(-1)
    slow = time.perf_counter() - start > 0.05
    used, wall = [], []
    for block in range(1 if slow else BLOCKS):
        before = time.process_time()
        for n in range(8 if slow else TURNS):
            start = time.perf_counter()
            await work(block * TURNS + n)
            wall.append(1000 * (time.perf_counter() - start))
        used.append(1000 * (time.process_time() - before) / (n + 1))
    return {"cpu": min(used), "wall": statistics.median(wall)}


async def append(it: Any, count: int) -> dict[str, float]:
    await it.fill("s", count)
    prepare(range(LATER - 2, LATER + 2 * TURNS * BLOCKS))
    return await time_call(lambda n: it.turn("s", LATER + 2 * n))


async def tail(it: Any, count: int) -> dict[str, float]:
    await it.fill("s", count)
    assert await it.tail("s") == 20
    return await time_call(lambda n: it.tail("s"))


async def calls(it: Any, count: int) -> dict[str, float]:
    """Return the bytes that one turn writes. A program that traces this process counts the fsyncs between the two
    marks.
    """
    await it.fill("s", count)
    await it.turn("s", LATER - 2)
    os.path.exists("/mark-begin")
    before = bytes_written()
    for n in range(20):
        await it.turn("s", LATER + 2 * n)
    after = bytes_written()
    os.path.exists("/mark-end")
    return {"bytes": (after - before) / 20}


def bytes_written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


async def writers(it: Any, count: int, *, whole: bool = False) -> dict[str, float]:
    """Write ``count`` sessions of 20 messages with 8 concurrent writers: turn by turn, or with ``whole`` each in one
    call.
    """
    prepare(range(20 * count))
    queue = iter(range(count))
    errors = 0

    async def write() -> None:
        nonlocal errors
        for session in queue:
            for n in range(0, 1 if whole else 20, 2):
                try:
                    await (it.fill(f"s{session}", 20) if whole else it.turn(f"s{session}", 20 * session + n))
                except (OSError, sqlite3.Error, RuntimeError):
                    errors += 1

    start, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[write() for _ in range(8)])
    committed, used = time.perf_counter() - start, time.process_time() - used
    if hasattr(it, "index"):
        await it.index()
    complete = sum([await it.tail(f"s{n}") == 20 for n in range(count)])
    return {
        "committed/s": count / committed,
        "cpu": 1000 * used / count,
        "indexed/s": count / (time.perf_counter() - start),
        "errors": errors,
        "whole": complete,
    }


async def batches(it: Any, count: int) -> dict[str, float]:
    return await writers(it, count, whole=True)


async def search(it: Any, count: int) -> dict[str, float]:
    for session in range(count):
        if isinstance(it, Ours):
            await it.store.add_messages(it.key(f"s{session}"), it.said(20 * session, 20))
        else:
            await it.turn(f"s{session}", 20 * session)
            it.open[f"s{session}"].add_many(it.said(20 * session + 2, 18))
            it.store.save(f"s{session}", it.open[f"s{session}"])
    if isinstance(it, Ours):
        await it.index()
    assert await it.search("rareword") == await it.search("common") == 5
    rare, common = await time_call(lambda n: it.search("rareword")), await time_call(lambda n: it.search("common"))
    return {"rare": rare["wall"], "rare cpu": rare["cpu"], "common": common["wall"], "common cpu": common["cpu"]}


async def match(it: Any, count: int) -> dict[str, float]:
    """Measure how long it takes to find, among ``count`` sessions, the one that begins with the given messages."""
    for session in range(count):
        key = it.key(f"s{session}")
        items = await it.store.add_messages(key, it.said(2 * session, 2))
        chain = {item.seq: f"{session}.{at}" for at, item in enumerate(items)}
        await it.store.remember(key, "scope", chain)
    wanted = f"{count // 2}.1"
    found = await it.store.match("local", "scope", [f"{count // 2}.0", wanted, "newer"])
    assert found is not None
    assert found.key.id == f"s{count // 2}"
    return await time_call(lambda n: it.store.match("local", "scope", [f"{n}.0", f"{n}.1", "newer"]))


async def stall(it: Any, count: int) -> dict[str, float]:
    """Return the longest delay of the event loop, in milliseconds, while turns are appended to a long session."""
    await it.fill("s", count)
    prepare(range(LATER, LATER + 10))
    worst, stop = 0.0, False

    async def tick() -> None:
        nonlocal worst
        last = time.perf_counter()
        while not stop:
            await asyncio.sleep(0)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    for n in range(5):
        await it.turn("s", LATER + 2 * n)
        await it.tail("s")
    stop = True
    await ticking
    return {"worst": 1000 * worst}


TASKS: dict[str, Callable[[Any, int], Awaitable[dict[str, float]]]] = {
    "append": append,
    "tail": tail,
    "calls": calls,
    "writers": writers,
    "batches": batches,
    "search": search,
    "match": match,
    "stall": stall,
}


async def main(contestant: str, task: str, directory: str, count: str = "0") -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    it = CONTESTANTS[contestant](Path(directory))
    print(json.dumps(await TASKS[task](it, int(count))))
    await it.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
