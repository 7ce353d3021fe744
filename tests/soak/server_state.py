"""Checks of a server's files and processes from outside."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.sessions.export.transcript import Transcript, parse

RECOVERY_S = 95.0
"""A lease (60 s), the wait for the next look (30 s), and a busy machine."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    session: str
    turn: str
    heartbeat: float


def check_store(path: Path, *, taken_back: bool = False) -> Counter[str]:
    """Check the store's file and return how much it contains. With ``taken_back``, users undid turns or dropped
    branches: then numbers may be missing, but none is used twice.

    Raises AssertionError for damage, gaps, calls without results, or wrong counts.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        db.execute("BEGIN")  # one moment of the store for all that follows
        sessions = db.execute("SELECT namespace, id, head, turns FROM sessions").fetchall()
        for namespace, session, head, turns in sessions:
            _check_session(db, (namespace, session), head, turns, taken_back=taken_back)
        items, stored = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("items", "turns"))
        return Counter({"sessions checked": len(sessions), "items checked": items, "turns checked": stored})


def _check_session(db: sqlite3.Connection, key: tuple[str, str], head: int, turns: int, *, taken_back: bool) -> None:
    here = "WHERE namespace = ? AND session = ?"
    items = db.execute(f"SELECT seq, turn, body FROM items {here} ORDER BY seq", key).fetchall()
    assert are_numbers_valid([seq for seq, _, _ in items], head, gaps=taken_back), (
        f"{key}: numbers have gaps or pass the head"
    )
    states = db.execute(f"SELECT id, state, ordinal FROM turns {here} ORDER BY ordinal", key).fetchall()
    assert are_numbers_valid([ordinal for _, _, ordinal in states], turns, gaps=taken_back), f"{key}: turns have gaps"
    is_open = {turn for turn, state, _ in states if state == "open"}
    order = {turn: ordinal for turn, _, ordinal in states}
    assert [order[turn] for _, turn, _ in items] == sorted(order[turn] for _, turn, _ in items), f"{key}: turns mix"
    _check_pairs(key, [(turn, json.loads(body)) for _, turn, body in items], is_open)


def are_numbers_valid(numbers: list[int], last: int, *, gaps: bool) -> bool:
    if not gaps:
        return numbers == list(range(1, last + 1))
    return numbers == sorted(set(numbers)) and all(1 <= number <= last for number in numbers)


def _check_pairs(key: tuple[str, str], items: list[tuple[str, dict[str, Any]]], is_open: set[str]) -> None:
    """Check that every call has one result before the next message of its turn, except in a running turn."""
    waiting: dict[str, str] = {}
    for turn, body in items:
        if body["role"] == "tool":
            assert waiting.pop(body["tool_call_id"], None) == turn, f"{key}: a result without its call"
        else:
            assert not waiting, f"{key}: {turn} goes on while calls have no result"
            waiting = {call["id"]: turn for call in body.get("tool_calls", ())}
    assert set(waiting.values()) <= is_open, f"{key}: a closed turn has calls without a result"


def open_turns(path: Path) -> list[OpenTurn]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        return [OpenTurn(*row) for row in db.execute("SELECT session, id, heartbeat FROM turns WHERE state = 'open'")]


def left_overs(root: Path) -> list[Path]:
    """Return the partial files of a killed server, which the next write beside them removes."""
    return [*root.rglob(".*.tmp"), *root.rglob(".*.bak.*")]


def check_sidecars(root: Path) -> list[Transcript]:
    """Parse every sidecar below ``root`` and return the transcripts."""
    assert not list(root.rglob("*.conflict.json")), "a server took its own sidecar for another one's"
    return [parse(path.read_bytes()) for path in root.rglob("*.agent.json")]


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def settled_descriptors(pid: int, most: int) -> int:
    """Return the number of open descriptors of a process once it is at most ``most``, and at the latest after 60
    seconds.
    """
    until = time.monotonic() + 60
    while (found := descriptors(pid)) > most and time.monotonic() < until:
        await asyncio.sleep(0.5)
    return found
