"""What changes the tree: the end of a branch taken back, branches dropped, sessions forked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agent_kernel.errors import Conflict, InvalidRequest
from agent_kernel.sessions import pairs
from agent_kernel.sessions.model import Item, Session, SessionKey
from agent_kernel.sessions.tables import items, segments, sessions, turns
from agent_kernel.sessions.tables.rows import HERE, pair
from agent_kernel.sessions.tables.segments import END, Piece


def pop(db: sqlite3.Connection, key: SessionKey, now: float) -> list[Item]:
    sessions.found(db, key)
    sessions.no_open_turn(db, key)
    way = segments.of_branch(db, key, None)
    newest, wanted = items.latest(db, key, way, 1), 2
    while not newest:  # a limit never starts inside a pair: the newest items are results
        newest = items.latest(db, key, way, wanted)
        if wanted > 2 * _count(db, key):
            return []
        wanted *= 2
    taken = newest[_last_unit(newest) :]
    _cut(db, key, way, taken, now)
    return taken


def rewind(db: sqlite3.Connection, key: SessionKey, tail: Sequence[Item], now: float) -> bool:
    sessions.found(db, key)
    sessions.no_open_turn(db, key)
    way = segments.of_branch(db, key, None)
    if not tail or items.latest(db, key, way, len(tail)) != list(tail):
        return not tail
    if pairs.unanswered({}, [item.message for item in tail]):
        raise InvalidRequest("A call would be taken back without its results.")
    _cut(db, key, way, tail, now)
    return True


def drop(db: sqlite3.Connection, key: SessionKey, name: str, now: float) -> None:
    branch = segments.named(db, key, name)
    sessions.no_open_turn(db, key)
    if branch.current:
        raise Conflict("The current branch can not be dropped.", hint="Switch to another one first.")
    db.execute(f"DELETE FROM branches WHERE {HERE} AND name = ?", (*pair(key), name))
    _collect(db, key)
    sessions.changed(db, key, now)


def siblings(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[tuple[str, str]]:
    """Turns that begin behind the same item, each with the first branch that shows it."""
    mine = None
    first: dict[str, tuple[int, str]] = {}
    before: dict[str, int] = {}
    for branch in segments.listed(db, key):
        previous = 0
        for shown in turns.listed(db, key, segments.of_branch(db, key, branch.name), None):
            first.setdefault(shown.id, (shown.ordinal, branch.name))
            before.setdefault(shown.id, previous)
            previous = shown.ordinal
            if shown.id == turn:
                mine = before[shown.id]
    same = sorted((first[id], id) for id, previous in before.items() if previous == mine)
    return [(id, branch) for (_, branch), id in same]


def fork(db: sqlite3.Connection, key: SessionKey, target: SessionKey, count: int | None, now: float) -> Session:
    source = sessions.found(db, key)
    if sessions.info(db, target):
        raise Conflict(f"There is a session {target.id!r} already.", details={"session": target.id})
    sessions.create(db, target, source.title, now)
    way = segments.of_branch(db, key, None)
    kept = [turn for turn in turns.listed(db, key, way, None) if turn.state == "committed"][:count]
    chosen = {turn.id for turn in kept}
    moved = [item for item in items.latest(db, key, way, None) if item.turn in chosen]
    _copy(db, key, target, [turn.id for turn in kept], [item.seq for item in moved])
    head = moved[-1].seq if moved else 0
    db.execute(
        "UPDATE sessions SET head = ?, turns = ?, tags = (SELECT tags FROM sessions WHERE namespace = ? AND id = ?)"
        " WHERE namespace = ? AND id = ?",
        (head, kept[-1].ordinal if kept else 0, *pair(key), *pair(target)),
    )
    sessions.changed(db, target, now)
    return sessions.found(db, target)


def _copy(db: sqlite3.Connection, key: SessionKey, target: SessionKey, ids: list[str], seqs: list[int]) -> None:
    """Seqs stay as they are; the copy has one segment. A blob is stored once per namespace."""
    columns = "turn, role, kind, call_id, body, cell, epoch, time"
    db.executemany(
        f"INSERT INTO items (namespace, session, seq, segment, {columns}) SELECT ?, ?, seq, 0, {columns} FROM items"
        f" WHERE {HERE} AND seq = ?",
        [(*pair(target), *pair(key), seq) for seq in seqs],
    )
    columns = (
        "id, ordinal, state, reason, cell, epoch, location, model, opened, closed, usage, record, since, pending,"
        " owner, instance, heartbeat"
    )
    db.executemany(
        f"INSERT INTO turns (namespace, session, segment, {columns}) SELECT ?, ?, 0, {columns} FROM turns"
        f" WHERE {HERE} AND id = ?",
        [(*pair(target), *pair(key), id) for id in ids],
    )
    db.executemany(
        "INSERT INTO blobs (namespace, hash, mime, size, data) SELECT ?, b.hash, b.mime, b.size, b.data FROM blobs AS b"
        " JOIN media AS m ON m.namespace = b.namespace AND m.hash = b.hash"
        " WHERE m.namespace = ? AND m.session = ? AND m.seq = ? ON CONFLICT DO NOTHING",
        [(target.namespace, *pair(key), seq) for seq in seqs],
    )
    db.executemany(
        f"INSERT INTO media (namespace, session, hash, seq) SELECT ?, ?, hash, seq FROM media WHERE {HERE} AND seq = ?",
        [(*pair(target), *pair(key), seq) for seq in seqs],
    )


def _cut(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], taken: Sequence[Item], now: float) -> None:
    """Takes the newest items off the current branch. What another branch shows too stays for it: then this branch goes
    on in a new segment behind what is left."""
    first = taken[0].seq
    left = next((piece for piece in way if _has_before(db, key, piece, first)), way[-1])
    if any(segments.shared(db, key, piece, first) for piece in way[: way.index(left) + 1]) or left is not way[0]:
        segments.repoint(db, key, segments.grow(db, key, left.segment, first - 1))
        _collect(db, key)
    else:
        items.remove(db, key, [item.seq for item in taken])
    sessions.changed(db, key, now)


def _has_before(db: sqlite3.Connection, key: SessionKey, piece: Piece, seq: int) -> bool:
    row = db.execute(
        f"SELECT 1 FROM items WHERE {HERE} AND segment = ? AND seq < ? AND seq <= ? LIMIT 1",
        (*pair(key), piece.segment, seq, min(piece.until, END)),
    ).fetchone()
    return row is not None


def _collect(db: sqlite3.Connection, key: SessionKey) -> None:
    """Removes what no branch goes through or shows."""
    gone, seqs = segments.unused(db, key)
    items.remove(db, key, seqs)
    db.executemany(f"DELETE FROM segments WHERE {HERE} AND id = ?", [(*pair(key), id) for id in gone])
    db.executemany(
        f"DELETE FROM turns WHERE {HERE} AND segment = ? AND state <> 'open'", [(*pair(key), id) for id in gone]
    )


def _last_unit(newest: Sequence[Item]) -> int:
    """Index of the newest item that stands alone, or of the message whose results end the list."""
    for index in range(len(newest) - 1, -1, -1):
        if newest[index].message.role != "tool":
            return index
    return 0


def _count(db: sqlite3.Connection, key: SessionKey) -> int:
    return int(db.execute(f"SELECT count(*) FROM items WHERE {HERE}", pair(key)).fetchone()[0])
