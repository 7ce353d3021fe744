"""What changes the tree: the end of a branch taken back, branches dropped, sessions forked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, Session, SessionKey
from agent_kernel.sessions.tables import blobs, files, items, segments, sessions, turns
from agent_kernel.sessions.tables.rows import HERE, pair
from agent_kernel.sessions.tables.segments import END, Piece


def pop(db: sqlite3.Connection, key: SessionKey, now: float) -> list[Item]:
    sessions.found(db, key)
    sessions.no_open_turn(db, key)
    way = segments.of_branch(db, key, None)
    if segments.end(db, key, way) == (0, 0):
        return []
    taken = items.last_unit(db, key, way)
    _cut(db, key, way, taken[0].seq if taken else 0, now)
    return taken


def rewind(db: sqlite3.Connection, key: SessionKey, tail: Sequence[Item], now: float) -> bool:
    sessions.found(db, key)
    sessions.no_open_turn(db, key)
    way = segments.of_branch(db, key, None)
    newest = items.newest(db, key, way, len(tail))
    if [_identity(item) for item in newest] != [_identity(item) for item in tail]:
        return False
    if not tail:
        return True
    if tail[0].message.role == "tool":
        raise InvalidRequest("A call would stay without its results.", hint="Take the call back too.")
    _cut(db, key, way, tail[0].seq, now)
    return True


def drop(db: sqlite3.Connection, key: SessionKey, name: str, now: float) -> None:
    branch = segments.named(db, key, name)
    sessions.no_open_turn(db, key)
    if branch.current:
        raise Conflict("The current branch can not be dropped.", hint="Switch to another one first.")
    db.execute(f"DELETE FROM branches WHERE {HERE} AND name = ?", (*pair(key), name))
    db.execute("INSERT INTO dropped_branches (namespace, session, name) VALUES (?, ?, ?)", (*pair(key), name))
    _collect(db, key)
    sessions.changed(db, key, now)


def siblings(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[tuple[str, str]]:
    """What begins right behind one item: in its own segment, and in those that branch off there."""
    mine = _place(db, key, turn)
    if mine is None:
        return []
    segment, seq = segments.end(db, key, segments.way(db, key, mine.segment), mine.since)
    beside = [_first_behind(db, key, id, seq) for id in (segment, *segments.children(db, key, segment, seq))]
    versions = {place for place in beside if place is not None} | {mine}
    ways = segments.ways(db, key)
    return [
        (place.turn, next(name for name, pieces in ways if segments.shows(pieces, place.segment, place.since)))
        for place in sorted(versions)
    ]


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
    files.copy(db, key, target, {turn.ordinal for turn in kept}, all=count is None)
    head = moved[-1].seq if moved else 0
    db.execute(
        "UPDATE sessions SET head = ?, turns = ?, (tags, imported) = (SELECT tags, json_remove(imported, '$.sha256')"
        " FROM sessions WHERE namespace = ? AND id = ?) WHERE namespace = ? AND id = ?",
        (head, kept[-1].ordinal if kept else 0, *pair(key), *pair(target)),
    )
    sessions.changed(db, target, now)
    return sessions.with_counts(db, sessions.found(db, target))


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
    carried = f"SELECT DISTINCT hash FROM media WHERE {HERE} AND seq = ?"
    digests = {digest for seq in seqs for (digest,) in db.execute(carried, (*pair(key), seq)).fetchall()}
    blobs.copy(db, key.namespace, target.namespace, sorted(digests))
    db.executemany(
        f"INSERT INTO media (namespace, session, hash, seq) SELECT ?, ?, hash, seq FROM media WHERE {HERE} AND seq = ?",
        [(*pair(target), *pair(key), seq) for seq in seqs],
    )


def _cut(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], first: int, now: float) -> None:
    """Takes what there is from item ``first`` on off the current branch. What another branch shows too stays for it:
    then this branch goes on in a new segment behind what is left."""
    segment, seq = segments.end(db, key, way, first - 1)
    if segment == way[0].segment and not segments.shared(db, key, segment, first):
        items.remove(db, key, segment, seq)
    else:
        segments.repoint(db, key, segments.grow(db, key, segment, seq))
        _collect(db, key)
    sessions.changed(db, key, now)


def _collect(db: sqlite3.Connection, key: SessionKey) -> None:
    """Removes what no branch goes through or shows."""
    reach = segments.reach(db, key)
    for segment in segments.every(db, key):
        if reach.get(segment) != END:
            items.remove(db, key, segment, reach.get(segment, 0))
        if segment and segment not in reach:
            db.execute(f"DELETE FROM segments WHERE {HERE} AND id = ?", (*pair(key), segment))


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    ordinal: int
    turn: str
    segment: int
    since: int


def _place(db: sqlite3.Connection, key: SessionKey, turn: str) -> _Place | None:
    row = db.execute(
        f"SELECT ordinal, id, segment, since FROM turns WHERE {HERE} AND id = ?", (*pair(key), turn)
    ).fetchone()
    return _Place(*row) if row else None


def _first_behind(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> _Place | None:
    """The turn of the next item of the segment, if it began there and not before."""
    row = db.execute(
        f"SELECT turn FROM items WHERE {HERE} AND segment = ? AND seq > ? ORDER BY seq LIMIT 1",
        (*pair(key), segment, seq),
    ).fetchone()
    place = _place(db, key, row[0]) if row else None
    return place if place is not None and place.since >= seq else None


def _identity(item: Item) -> tuple[int, str, Message]:
    return item.seq, item.turn, item.message
