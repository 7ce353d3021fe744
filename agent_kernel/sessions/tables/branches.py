"""Changes the branch tree: removes the end of a branch, drops a branch, and forks a session."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, Session, SessionKey, Turn
from agent_kernel.sessions.tables import blobs, files, items, segments, sessions, turns
from agent_kernel.sessions.tables.rows import HERE, insert_row, insert_rows, pair
from agent_kernel.sessions.tables.segments import END, SegmentRange


def pop(db: sqlite3.Connection, key: SessionKey, now: float) -> list[Item]:
    sessions.require_session(db, key)
    sessions.check_no_open_turn(db, key)
    path = segments.branch_path(db, key, None)
    if segments.find_end(db, key, path) == (0, 0):
        return []
    unit = items.select_last_unit(db, key, path)
    _cut_from(db, key, path, unit[0].seq if unit else 0, now)
    return unit


def rewind(db: sqlite3.Connection, key: SessionKey, tail: Sequence[Item], now: float) -> bool:
    sessions.require_session(db, key)
    sessions.check_no_open_turn(db, key)
    path = segments.branch_path(db, key, None)
    newest = items.select_newest(db, key, path, len(tail))
    if [_identity(item) for item in newest] != [_identity(item) for item in tail]:
        return False
    if not tail:
        return True
    if tail[0].message.role == "tool":
        raise InvalidRequest("A tool call would be left without its results.", hint="Remove its message too.")
    _cut_from(db, key, path, tail[0].seq, now)
    return True


def remove_branch(db: sqlite3.Connection, key: SessionKey, name: str, now: float) -> None:
    branch = segments.require_branch(db, key, name)
    sessions.check_no_open_turn(db, key)
    if branch.current:
        raise Conflict("The current branch cannot be dropped.", hint="Switch to another one first.")
    db.execute(f"DELETE FROM branches WHERE {HERE} AND name = ?", (*pair(key), name))
    insert_row(db, "dropped_branches", key, name=name)
    _remove_unreachable(db, key)
    sessions.mark_changed(db, key, now)


def select_siblings(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[tuple[str, str]]:
    """Return (turn, first branch that contains it) of the turns that begin directly after the same item as ``turn``,
    including ``turn`` itself.

    These are the first turn after that item in the item's segment, and the first turn of each segment that begins
    there.
    """
    position = _select_position(db, key, turn)
    if position is None:
        return []
    segment, seq = segments.find_end(db, key, segments.path_to_root(db, key, position.segment), position.since)
    # The search for first turns does not find a turn without items, so the turn itself is always added.
    beside = [_first_turn_after(db, key, id, seq) for id in (segment, *segments.select_children(db, key, segment, seq))]
    versions = {place for place in beside if place is not None} | {position}
    ways = segments.branch_paths(db, key)
    return [
        (place.turn, next(name for name, pieces in ways if segments.path_contains(pieces, place.segment, place.since)))
        for place in sorted(versions)
    ]


def fork_session(db: sqlite3.Connection, key: SessionKey, target: SessionKey, count: int | None, now: float) -> Session:
    source = sessions.require_session(db, key)
    if sessions.select_session(db, target):
        raise Conflict(f"A session {target.id!r} exists already.", details={"session": target.id})
    sessions.create(db, target, source.title, now)
    path = segments.branch_path(db, key, None)
    # Turns and items keep their numbers, with gaps, so that the numbers of the source mean the same in the fork.
    copied = _turns_to_fork(turns.select_turns(db, key, path, None), count)
    chosen = {turn.id for turn in copied}
    moved = [item for item in items.select_latest(db, key, path, None) if item.turn in chosen]
    _copy_rows(db, key, target, [turn.id for turn in copied], [item.seq for item in moved])
    files.copy_files(db, key, target, {turn.ordinal for turn in copied}, all=count is None)
    # A turn without items may begin after the last item; the next turn must begin after it.
    head = max((*(item.seq for item in moved[-1:]), *(turn.since for turn in copied)), default=0)
    db.execute(
        # The hash of the imported document is removed: the fork may hold less than that document.
        "UPDATE sessions SET head = ?, turns = ?, (tags, imported) = (SELECT tags, json_remove(imported, '$.sha256')"
        " FROM sessions WHERE namespace = ? AND id = ?) WHERE namespace = ? AND id = ?",
        (head, copied[-1].ordinal if copied else 0, *pair(key), *pair(target)),
    )
    sessions.mark_changed(db, target, now)
    return sessions.require_session(db, target, counts=True)


def _turns_to_fork(of_branch: Sequence[Turn], count: int | None) -> list[Turn]:
    """Return the turns of a branch that a fork of its first ``count`` answered turns has. Turns that were stopped or
    failed before the last of these turns are copied too, since the original shows them; with None, all turns are copied
    that have ended."""
    ended = [turn for turn in of_branch if turn.state != "open"]
    answered = [number for number, turn in enumerate(ended, 1) if turn.state == "committed"]
    if count is None or count > len(answered):
        return ended
    return ended[: answered[count - 1] if count else 0]


def _copy_rows(db: sqlite3.Connection, key: SessionKey, target: SessionKey, ids: list[str], seqs: list[int]) -> None:
    """Copy the turns ``ids`` and the items ``seqs`` with their media to the session ``target``. They keep their
    sequence numbers and are all in segment 0. Blobs are stored once per namespace."""
    read = (
        f"SELECT ?, ?, seq, turn, role, kind, call_id, body, cell, epoch, time, 0 FROM items WHERE {HERE} AND seq = ?"
    )
    insert_rows(
        db, "items", [row for seq in seqs for row in db.execute(read, (*pair(target), *pair(key), seq)).fetchall()]
    )
    read = (
        "SELECT ?, ?, id, ordinal, state, reason, cell, epoch, location, model, opened, closed, usage, record, pending,"
        f" owner, instance, heartbeat, 0, since FROM turns WHERE {HERE} AND id = ?"
    )
    insert_rows(
        db, "turns", [row for id in ids for row in db.execute(read, (*pair(target), *pair(key), id)).fetchall()]
    )
    carried = f"SELECT DISTINCT hash FROM media WHERE {HERE} AND seq = ?"
    digests = {digest for seq in seqs for (digest,) in db.execute(carried, (*pair(key), seq)).fetchall()}
    blobs.copy_blobs(db, key.namespace, target.namespace, sorted(digests))
    db.executemany(
        f"INSERT INTO media (namespace, session, hash, seq) SELECT ?, ?, hash, seq FROM media WHERE {HERE} AND seq = ?",
        [(*pair(target), *pair(key), seq) for seq in seqs],
    )


def _cut_from(db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], first: int, now: float) -> None:
    """Remove the item with the sequence number ``first`` and all later items from the current branch, whose path is
    ``path``.

    Items that another branch contains too stay stored. In that case the current branch continues in a new segment after
    the remaining items.
    """
    segment, seq = segments.find_end(db, key, path, first - 1)
    # The removed items are in the last segment, and no other branch contains them: their rows can be deleted.
    if segment == path[0].segment and not segments.is_shared(db, key, segment, first):
        items.remove_after(db, key, segment, seq)
    else:
        # Another branch contains the removed items, or they are in a parent segment: keep the rows, and let the branch
        # end in an empty segment after the remaining items.
        segments.move_branch_end(db, key, segments.insert_segment(db, key, segment, seq))
        _remove_unreachable(db, key)
    sessions.mark_changed(db, key, now)


def _remove_unreachable(db: sqlite3.Connection, key: SessionKey) -> None:
    """Delete items and segments that no branch contains."""
    reach = segments.segment_extents(db, key)
    for segment in segments.select_segment_ids(db, key):
        if reach.get(segment) != END:
            items.remove_after(db, key, segment, reach.get(segment, 0))
        if segment and segment not in reach:
            db.execute(f"DELETE FROM segments WHERE {HERE} AND id = ?", (*pair(key), segment))


@dataclass(frozen=True, slots=True, order=True)
class _TurnPlacement:
    """The place at which a turn begins in the tree: its segment, and the item ``since`` after which it begins.
    Placements are sorted by ordinal, the number of the turn in its session."""

    ordinal: int
    turn: str
    segment: int
    since: int


def _select_position(db: sqlite3.Connection, key: SessionKey, turn: str) -> _TurnPlacement | None:
    row = db.execute(
        f"SELECT ordinal, id, segment, since FROM turns WHERE {HERE} AND id = ?", (*pair(key), turn)
    ).fetchone()
    return _TurnPlacement(*row) if row else None


def _first_turn_after(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> _TurnPlacement | None:
    """Return the placement of the turn to which the first item after ``seq`` in the segment belongs, or None if there
    is no such item or if that turn began before ``seq``."""
    row = db.execute(
        f"SELECT turn FROM items WHERE {HERE} AND segment = ? AND seq > ? ORDER BY seq LIMIT 1",
        (*pair(key), segment, seq),
    ).fetchone()
    place = _select_position(db, key, row[0]) if row else None
    return place if place is not None and place.since >= seq else None


def _identity(item: Item) -> tuple[int, str, Message]:
    return item.seq, item.turn, item.message
