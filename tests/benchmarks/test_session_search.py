"""Compares a search in a thousand sessions with a scan of all texts by plain sqlite3 in the same run."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SessionKey, SessionQuery, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore

SESSIONS, MESSAGES = 1_000, 20
RARE, COMMON = "crystallography", "weather"
FREQUENT = ("the", "data", "and", "value", "model")


def texts() -> list[str]:
    """Return texts of 330 to 500 bytes. One in 25 contains RARE; all but one in 50 contain COMMON."""
    draw = random.Random(4)
    vocabulary = ["".join(draw.choices("etaoinshrdlucmfwypvbgkqjxz", k=draw.randint(3, 9))) for _ in range(5_000)]
    made = []
    for at in range(SESSIONS * MESSAGES):
        words = [RARE] * (at % 25 == 0) + [COMMON] * (at % 50 != 0)
        size = draw.randint(330, 480)
        while sum(len(word) + 1 for word in words) < size:
            words.append(draw.choice(FREQUENT) if draw.random() < 0.3 else draw.choice(vocabulary))
        draw.shuffle(words)
        made.append(" ".join(words)[:500])
    return made


async def milliseconds(times: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[float, float]:
    """Return the wall-clock time and the CPU time of this process, in milliseconds, of the fastest run."""
    best = []
    for _ in range(times):
        cpu, wall = time.process_time(), time.perf_counter()
        await work()
        best.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
    return min(best)


def floor(said: list[str]) -> Callable[[str], Coroutine[Any, Any, int]]:
    """Return a search that is the lower bound: LIKE over one table, no scores, no snippets, no thread."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE texts (session INTEGER, text TEXT)")
    db.executemany("INSERT INTO texts VALUES (?, ?)", [(at // MESSAGES, text) for at, text in enumerate(said)])

    async def scan(word: str) -> int:
        rows = db.execute("SELECT session, count(*) FROM texts WHERE text LIKE ? GROUP BY 1", (f"%{word}%",)).fetchall()
        return len(rows)

    return scan


async def test_a_search_in_a_thousand_sessions(tmp_path: Path) -> None:
    said = texts()
    store, scan = SqliteStore(tmp_path / "s.db"), floor(said)
    for at in range(SESSIONS):
        messages = [(assistant if n % 2 else user)(said[at * MESSAGES + n]) for n in range(MESSAGES)]
        await store.add_turn(Turn("t", SessionKey("local", f"s{at}")), messages)
    unfolded = await milliseconds(3, lambda: store.search("local", SessionQuery(RARE)))
    cpu, wall = time.process_time(), time.perf_counter()
    while await store.fold():
        pass
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"\nfolded {SESSIONS / wall:.0f} sessions/s ({SESSIONS / cpu:.0f} of CPU)")
    print(f"nothing folded yet, a rare word: {unfolded[0]:.1f} ms ({unfolded[1]:.1f} of CPU)")
    for name, query in (("rare", RARE), ("common", COMMON), ("two", f"{RARE} {COMMON}"), ("two letters", "qj")):
        wall, cpu = await milliseconds(7, lambda query=query: store.search("local", SessionQuery(query)))  # type: ignore[misc]
        least, _ = await milliseconds(7, lambda query=query: scan(query.split()[-1]))  # type: ignore[misc]
        hits = await store.search("local", SessionQuery(query, limit=SESSIONS))
        print(
            f"{name:<12} {wall:6.1f} ms ({cpu:5.1f} of CPU), {wall / least:4.1f} of a LIKE scan ({least:.1f} ms);"
            f" {len(hits)} sessions"
        )
        assert hits
    size = (tmp_path / "s.db").stat().st_size
    print(f"{size / 2**20:.0f} MiB on disk for {sum(map(len, said)) / 2**20:.0f} MiB of text")
    await store.aclose()
