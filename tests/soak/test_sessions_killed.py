"""Kills writers of one session file at random moments: no acknowledged turn is lost, and none is torn."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_kernel.core.session import LEASE_S
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.soak.conftest import Soak

ROOT = Path(__file__).parents[2]
WRITERS = 4
KILLS = 100
"""At least, however little time there is."""
WRITER = """
import asyncio, sys
from agent_kernel.sessions.contract_tests.fixtures import calls, result
from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import Media, Usage, assistant, user
from agent_kernel.turn.turn_writer import TurnWriter
from agent_kernel.core.session import SessionKey, Turn, new_id
from agent_kernel.sessions.store.sqlite import SqliteStore

async def main(path, session):
    store, key = SqliteStore(path), SessionKey("local", session)
    turn_writer = TurnWriter(store)
    await store.create(key)
    while True:
        turn = Turn(new_id("turn"), key)
        try:
            opened = await turn_writer.begin(turn)
        except SessionBusy:
            await asyncio.sleep(0.002)
            continue
        print("begun", flush=True)
        picture = Media.of("image/png", turn.id.encode() * 1000)
        await opened.append([user("add " + turn.id, [picture]), calls("a", "b")])
        await opened.append([result("a", "x" * 400)])
        await opened.append([result("b", "y" * 400), assistant("done " + turn.id)])
        assert await opened.close("committed", "", Usage()) is None
        print(turn.id, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@dataclass
class Writer:
    """A writing process. ``told`` are the turns whose commit was acknowledged."""

    path: Path
    session: str
    log: Path
    told: set[str] = field(default_factory=set)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("wb") as out:
            command = [sys.executable, "-c", WRITER, str(self.path), self.session]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out)

    def writes(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "a writer ended by itself"
        return bool(self.log.stat().st_size)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        lines = self.log.read_text().splitlines(keepends=True)
        self.told |= {line.strip() for line in lines if line.startswith("turn-") and line.endswith("\n")}


@pytest.mark.soak(0.05)
async def test_writers_killed_at_random_lose_no_committed_turn(soak: Soak, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    writers = [Writer(path, f"s{n % 3}", tmp_path / f"writer{n}") for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    soak.begin()
    try:
        while soak.running or soak.counts["kills"] < KILLS:
            writer = soak.random.choice(writers)
            while not writer.writes():
                await asyncio.sleep(0.005)
            await asyncio.sleep(soak.random.uniform(0, 0.05))
            writer.kill()
            soak.counts["kills"] += 1
            writer.start()
    finally:
        for writer in writers:
            writer.kill()
    told = set().union(*[writer.told for writer in writers])
    soak.counts["turns acknowledged"] = len(told)
    await check(path, told)


async def check(path: Path, told: set[str]) -> None:
    """Check the file with SQL and with the store's own check."""
    later = time.time() + LEASE_S
    store = SqliteStore(path, clock=lambda: later)
    await store.recover()
    assert await store.verify() == []
    await store.aclose()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        states = dict(db.execute("SELECT id, state FROM turns"))
        assert set(states.values()) <= {"committed", "interrupted"}
        lost = {turn for turn in told if states.get(turn) != "committed"}
        assert not lost
        counts = dict(db.execute("SELECT turn, count(*) FROM items GROUP BY turn"))
        torn = {turn for turn, state in states.items() if state == "committed" and counts.get(turn) != 5}
        assert not torn
        calls = "SELECT session, turn, count(*) FROM items WHERE kind = 'calls' GROUP BY session, turn"
        results = "SELECT session, turn, count(*) FROM items WHERE kind = 'result' GROUP BY session, turn"
        asked = {(session, turn): 2 * count for session, turn, count in db.execute(calls)}
        assert asked == {(session, turn): count for session, turn, count in db.execute(results)}
        gaps = (
            "SELECT session FROM items GROUP BY session HAVING count(*) <> max(seq) OR count(DISTINCT seq) <> count(*)"
        )
        assert db.execute(gaps).fetchall() == []
