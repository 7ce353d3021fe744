"""The tree of a session: its segments, the way to the beginning, and the branches that name its ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import BranchNotFound, Conflict, InvalidRequest, TurnNotFound
from agent_kernel.core.session import Branch, SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import sessions
from agent_kernel.sessions.tables.rows import HERE, pair

END = 2**62
"""Behind every seq."""
MAX_NAME = 200
_BRANCH = (
    "b.name, b.parent, b.segment, b.created, coalesce(g.since, 0), b.name = s.branch FROM branches AS b"
    " JOIN sessions AS s ON s.namespace = b.namespace AND s.id = b.session"
    " LEFT JOIN segments AS g ON g.namespace = b.namespace AND g.session = b.session AND g.id = b.segment"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """The items of ``segment`` up to seq ``until``."""

    segment: int
    until: int = END


def current(db: sqlite3.Connection, key: SessionKey) -> int | None:
    """The segment at the end of the current branch; None: no session."""
    row = db.execute("SELECT segment FROM sessions WHERE namespace = ? AND id = ?", pair(key)).fetchone()
    return int(row[0]) if row else None


def way(db: sqlite3.Connection, key: SessionKey, segment: int | None) -> list[Piece]:
    """From the end of ``segment`` to the beginning of the session; each until is at most the one before it."""
    pieces: list[Piece] = []
    until = END
    while segment is not None:
        pieces.append(Piece(segment, until))
        if not segment:
            break
        row = db.execute(
            f"SELECT parent, since FROM segments WHERE {HERE} AND id = ?", (*pair(key), segment)
        ).fetchone()
        if row is None:
            break
        segment, until = int(row[0]), min(until, int(row[1]))
    return pieces


def of_branch(db: sqlite3.Connection, key: SessionKey, branch: str | None) -> list[Piece]:
    """The way of a branch (None = the current one); empty when there is none."""
    if branch is None:
        return way(db, key, current(db, key))
    row = db.execute(f"SELECT segment FROM branches WHERE {HERE} AND name = ?", (*pair(key), branch)).fetchone()
    return way(db, key, int(row[0])) if row else []


def ways(db: sqlite3.Connection, key: SessionKey) -> list[tuple[str, list[Piece]]]:
    """Every branch with its way, in the order in which the branches were made."""
    rows = db.execute(f"SELECT name, segment FROM branches WHERE {HERE} ORDER BY rowid", pair(key)).fetchall()
    return [(name, way(db, key, segment)) for name, segment in rows]


def listed(db: sqlite3.Connection, key: SessionKey) -> list[Branch]:
    rows = db.execute(
        f"SELECT {_BRANCH} WHERE b.namespace = ? AND b.session = ? ORDER BY b.rowid", pair(key)
    ).fetchall()
    return [_branch_of(db, key, row) for row in rows]


def named(db: sqlite3.Connection, key: SessionKey, name: str) -> Branch:
    sessions.found(db, key)
    where = "b.namespace = ? AND b.session = ? AND b.name = ?"
    row = db.execute(f"SELECT {_BRANCH} WHERE {where}", (*pair(key), name)).fetchone()
    if row is None:
        raise BranchNotFound(f"There is no branch {name!r}.", details={"branch": name})
    return _branch_of(db, key, row)


def make(db: sqlite3.Connection, key: SessionKey, before: str | None, name: str, now: float) -> Branch:
    session = sessions.found(db, key)
    sessions.no_open_turn(db, key)
    taken = _names(db, key)
    name = _checked(name) if name else _free(taken)
    if name in taken:
        raise Conflict(
            f"There is or was a branch {name!r} already.",
            hint="The name of a dropped branch is not given again.",
            details={"branch": name},
        )
    segment = grow(db, key, *_end(db, key, before))
    db.execute(
        "INSERT INTO branches (namespace, session, name, segment, parent, created) VALUES (?, ?, ?, ?, ?, ?)",
        (*pair(key), name, segment, session.branch, now),
    )
    return select(db, key, name, now)


def select(db: sqlite3.Connection, key: SessionKey, name: str, now: float) -> Branch:
    """Makes it the current one."""
    sessions.no_open_turn(db, key)
    named(db, key, name)
    _make_current(db, key, name)
    sessions.changed(db, key, now)
    return named(db, key, name)


def follow(db: sqlite3.Connection, key: SessionKey, behind: int, now: float) -> int:
    """The segment that goes on behind item ``behind`` (0: at the beginning): of the current branch if that ends there,
    else of the newest other one that does, else of a new branch. The branch is the current one then, also while a turn
    is open."""
    segment = holding(db, key, behind, [Piece(id) for id in every(db, key)])
    if behind and segment is None:
        raise InvalidRequest(f"There is no item {behind} to go on behind.", details={"behind": behind})
    here = (segment, behind) if segment is not None else (0, 0)
    now_current = sessions.found(db, key).branch
    ending = [name for name, pieces in ways(db, key) if end(db, key, pieces) == here]
    if now_current in ending:
        name = now_current
    elif ending:
        name = ending[-1]
    else:
        name = _free(_names(db, key))
        db.execute(
            "INSERT INTO branches (namespace, session, name, segment, parent, created) VALUES (?, ?, ?, ?, ?, ?)",
            (*pair(key), name, grow(db, key, *here), now_current, now),
        )
    return _make_current(db, key, name)


def holding(db: sqlite3.Connection, key: SessionKey, seq: int, pieces: Sequence[Piece]) -> int | None:
    """The segment of these in which item ``seq`` is."""
    for piece in pieces:
        where = (*pair(key), piece.segment, seq)
        row = db.execute(f"SELECT 1 FROM items WHERE {HERE} AND segment = ? AND seq = ?", where).fetchone()
        if row and seq <= piece.until:
            return piece.segment
    return None


def _make_current(db: sqlite3.Connection, key: SessionKey, name: str) -> int:
    """Its segment."""
    db.execute(
        "UPDATE sessions SET branch = :name, segment = (SELECT segment FROM branches WHERE namespace = :namespace"
        " AND session = :session AND name = :name) WHERE namespace = :namespace AND id = :session",
        {"name": name, "namespace": key.namespace, "session": key.id},
    )
    return current(db, key) or 0


def grow(db: sqlite3.Connection, key: SessionKey, parent: int, since: int) -> int:
    """A new segment behind ``parent`` up to ``since``."""
    newest = db.execute(f"SELECT coalesce(max(id), 0) FROM segments WHERE {HERE}", pair(key)).fetchone()[0]
    of_branches = db.execute(f"SELECT coalesce(max(segment), 0) FROM branches WHERE {HERE}", pair(key)).fetchone()[0]
    segment = max(int(newest), int(of_branches)) + 1
    db.execute(
        "INSERT INTO segments (namespace, session, id, parent, since) VALUES (?, ?, ?, ?, ?)",
        (*pair(key), segment, parent, since),
    )
    return segment


def shared(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> bool:
    """Another branch than the current one goes through item ``seq`` of its last segment."""
    row = db.execute(
        f"SELECT 1 FROM segments WHERE {HERE} AND parent = ? AND since >= ? LIMIT 1", (*pair(key), segment, seq)
    ).fetchone()
    return row is not None


def repoint(db: sqlite3.Connection, key: SessionKey, segment: int) -> None:
    """The current branch ends in ``segment`` from now on."""
    db.execute(
        f"UPDATE branches SET segment = ? WHERE {HERE}"
        " AND name = (SELECT branch FROM sessions WHERE namespace = ? AND id = ?)",
        (segment, *pair(key), *pair(key)),
    )
    db.execute("UPDATE sessions SET segment = ? WHERE namespace = ? AND id = ?", (segment, *pair(key)))


def reach(db: sqlite3.Connection, key: SessionKey) -> dict[int, int]:
    """How far branches go through each segment: (segment, seq); END: one of them ends there."""
    found: dict[int, int] = {}
    for _, pieces in ways(db, key):
        for piece in pieces:
            found[piece.segment] = max(piece.until, found.get(piece.segment, 0))
    return found


def hidden(db: sqlite3.Connection, key: SessionKey) -> list[int]:
    """The items that no branch shows; there should be none."""
    shown = reach(db, key)
    behind = f"SELECT seq FROM items WHERE {HERE} AND segment = ? AND seq > ?"
    lost = [db.execute(behind, (*pair(key), at, shown.get(at, 0))) for at in every(db, key) if shown.get(at) != END]
    return sorted(seq for rows in lost for (seq,) in rows)


def every(db: sqlite3.Connection, key: SessionKey) -> list[int]:
    return [0, *(id for (id,) in db.execute(f"SELECT id FROM segments WHERE {HERE}", pair(key)))]


def children(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> list[int]:
    """The segments that go on right behind item ``seq`` of ``segment``."""
    rows = db.execute(f"SELECT id FROM segments WHERE {HERE} AND parent = ? AND since = ?", (*pair(key), segment, seq))
    return [id for (id,) in rows]


def end(db: sqlite3.Connection, key: SessionKey, pieces: Sequence[Piece], until: int = END) -> tuple[int, int]:
    """(segment, seq) of the newest item of a way up to ``until``; (0, 0): there is none."""
    for piece in pieces:
        row = db.execute(
            f"SELECT max(seq) FROM items WHERE {HERE} AND segment = ? AND seq <= ?",
            (*pair(key), piece.segment, min(piece.until, until)),
        ).fetchone()
        if row[0] is not None:
            return piece.segment, int(row[0])
    return 0, 0


def _end(db: sqlite3.Connection, key: SessionKey, before: str | None) -> tuple[int, int]:
    """The end of the current branch, or what the turn ``before`` of it followed."""
    pieces = of_branch(db, key, None)
    if before is None:
        return end(db, key, pieces)
    row = db.execute(f"SELECT segment, since FROM turns WHERE {HERE} AND id = ?", (*pair(key), before)).fetchone()
    if row is None or not shows(pieces, *row):
        raise TurnNotFound(f"There is no turn {before!r} on this branch.", details={"turn": before})
    return end(db, key, pieces, int(row[1]))


def shows(pieces: Sequence[Piece], segment: int, since: int) -> bool:
    """A way goes through the turn that began in ``segment`` behind item ``since``."""
    return any(piece.segment == segment and since < piece.until for piece in pieces)


def _names(db: sqlite3.Connection, key: SessionKey) -> set[str]:
    """Of the branches that there are and were."""
    rows = db.execute(
        f"SELECT name FROM branches WHERE {HERE} UNION SELECT name FROM dropped_branches WHERE {HERE}",
        (*pair(key), *pair(key)),
    )
    return {name for (name,) in rows}


def _branch_of(db: sqlite3.Connection, key: SessionKey, row: tuple[Any, ...]) -> Branch:
    name, parent, segment, created, since, is_current = row
    return Branch(name, parent, since, *_extent(db, key, way(db, key, segment)), created, bool(is_current))


def _extent(db: sqlite3.Connection, key: SessionKey, pieces: list[Piece]) -> tuple[int, int]:
    """(seq of the newest item, number of turns)"""
    heads, turns = [0], 0
    for piece in pieces:
        where = (*pair(key), piece.segment, piece.until)
        head = db.execute(f"SELECT max(seq) FROM items WHERE {HERE} AND segment = ? AND seq <= ?", where).fetchone()[0]
        heads.append(head or 0)
        shown = db.execute(f"SELECT count(*) FROM turns WHERE {HERE} AND segment = ? AND since < ?", where)
        turns += shown.fetchone()[0]
    return max(heads), turns


def _checked(name: str) -> str:
    serialization.text(name, "name of a branch")
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"A branch has a name of 1 to {MAX_NAME} printable characters.")
    return name


def _free(names: set[str]) -> str:
    number = len(names) + 1
    while f"branch-{number}" in names:
        number += 1
    return f"branch-{number}"
