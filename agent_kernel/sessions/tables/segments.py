"""SQL for the branch tree of a session: its segments, its branches, and their paths.

A segment is a sequence of items; new items are appended at its end. It begins after item ``since`` of the segment
``parent``. Segment 0 is the beginning of the session and has no row. A branch is a name for its last segment. It shows
all items of this segment, and the items of each parent up to ``since``. The list of these ranges, from the last segment
to segment 0, is the path of the branch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import BranchNotFound, Conflict, InvalidRequest, TurnNotFound
from agent_kernel.core.session import Branch, SessionKey
from agent_kernel.core.session_tree import AFTER_EVERY_SEQ, next_free_name
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import sessions
from agent_kernel.sessions.tables.rows import HERE, has_row, insert_row, pair, update_session

END = AFTER_EVERY_SEQ
"""The value of ``SegmentRange.until`` for a segment that a branch shows completely."""
MAX_NAME = 200
"""Maximum characters of a branch name."""
_BRANCH_COLUMNS = (
    "b.name, b.parent, b.segment, b.created, coalesce(g.since, 0), b.name = s.branch FROM branches AS b"
    " JOIN sessions AS s ON s.namespace = b.namespace AND s.id = b.session"
    " LEFT JOIN segments AS g ON g.namespace = b.namespace AND g.session = b.session AND g.id = b.segment"
)
"""The part of a query for branches between SELECT and WHERE. LEFT JOIN, because segment 0 has no row; its ``since``
counts as 0."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The items of ``segment`` up to and including the item with the sequence number ``until``. A path is a list of
    such ranges, newest first."""

    segment: int
    until: int = END


def current_segment(db: sqlite3.Connection, key: SessionKey) -> int | None:
    """Return the segment at the end of the current branch, or None if there is no such session."""
    row = db.execute("SELECT segment FROM sessions WHERE namespace = ? AND id = ?", pair(key)).fetchone()
    return int(row[0]) if row else None


def path_to_root(db: sqlite3.Connection, key: SessionKey, segment: int | None) -> list[SegmentRange]:
    """Return the path from the end of ``segment`` to the beginning of the session."""
    pieces: list[SegmentRange] = []
    until = END
    while segment is not None:
        # All items of the first segment belong to the path; those of a parent only up to the item after which its child
        # begins.
        pieces.append(SegmentRange(segment, until))
        # Segment 0 is the root and has no row.
        if not segment:
            break
        row = db.execute(
            f"SELECT parent, since FROM segments WHERE {HERE} AND id = ?", (*pair(key), segment)
        ).fetchone()
        if row is None:
            break
        # A segment may begin before the item up to which its child continues it, so the limit must never grow on the
        # way to the root.
        segment, until = int(row[0]), min(until, int(row[1]))
    return pieces


def branch_path(db: sqlite3.Connection, key: SessionKey, branch: str | None) -> list[SegmentRange]:
    """Return the path of a branch (None = the current one). Empty if there is no such branch."""
    if branch is None:
        return path_to_root(db, key, current_segment(db, key))
    row = db.execute(f"SELECT segment FROM branches WHERE {HERE} AND name = ?", (*pair(key), branch)).fetchone()
    return path_to_root(db, key, int(row[0])) if row else []


def branch_paths(db: sqlite3.Connection, key: SessionKey) -> list[tuple[str, list[SegmentRange]]]:
    """Return every branch with its path, in the order in which the branches were created."""
    rows = db.execute(f"SELECT name, segment FROM branches WHERE {HERE} ORDER BY rowid", pair(key)).fetchall()
    return [(name, path_to_root(db, key, segment)) for name, segment in rows]


def select_branches(db: sqlite3.Connection, key: SessionKey) -> list[Branch]:
    rows = db.execute(
        f"SELECT {_BRANCH_COLUMNS} WHERE b.namespace = ? AND b.session = ? ORDER BY b.rowid", pair(key)
    ).fetchall()
    return [_branch_from_row(db, key, row) for row in rows]


def require_branch(db: sqlite3.Connection, key: SessionKey, name: str) -> Branch:
    """Return the branch. Raises BranchNotFound, SessionNotFound."""
    sessions.require_session(db, key)
    where = "b.namespace = ? AND b.session = ? AND b.name = ?"
    row = db.execute(f"SELECT {_BRANCH_COLUMNS} WHERE {where}", (*pair(key), name)).fetchone()
    if row is None:
        raise BranchNotFound(f"There is no branch {name!r}.", details={"branch": name})
    return _branch_from_row(db, key, row)


def create_branch(db: sqlite3.Connection, key: SessionKey, before: str | None, name: str, now: float) -> Branch:
    """Create a branch that ends before the turn ``before`` (None: at the end of the current branch), and make it the
    current branch.

    Raises Conflict for a name that a branch has or had, TurnNotFound, and SessionBusy.
    """
    session = sessions.require_session(db, key)
    sessions.check_no_open_turn(db, key)
    # Names of dropped branches stay reserved, so that a name in an exported document or a log never means two branches.
    used_names = _select_used_names(db, key)
    name = _validate_name(name) if name else next_free_name(used_names)
    if name in used_names:
        raise Conflict(
            f"The name {name!r} is or was used by a branch.",
            hint="The name of a dropped branch cannot be used again.",
            details={"branch": name},
        )
    segment = insert_segment(db, key, *_find_branch_point(db, key, before))
    insert_row(db, "branches", key, name=name, segment=segment, parent=session.branch, created=now)
    return switch_branch(db, key, name, now)


def switch_branch(db: sqlite3.Connection, key: SessionKey, name: str, now: float) -> Branch:
    """Make the branch ``name`` the current one."""
    sessions.check_no_open_turn(db, key)
    require_branch(db, key, name)
    make_current(db, key, name)
    sessions.mark_changed(db, key, now)
    return require_branch(db, key, name)


def switch_to_item(db: sqlite3.Connection, key: SessionKey, behind: int, now: float) -> int:
    """Switch the session to a branch whose last item has the sequence number ``behind`` (0: a branch without items),
    and return the id of the branch's last segment. Unlike ``switch_branch`` this is possible while a turn is open.

    If the current branch ends there, it stays the current one. Otherwise the newest branch that ends there is used. If
    there is none, a branch is created.
    """
    segment = find_segment(db, key, behind, [SegmentRange(id) for id in select_segment_ids(db, key)])
    if behind and segment is None:
        raise InvalidRequest(
            f"The session has no item {behind}, so no branch can continue after it.",
            details={"behind": behind},
        )
    # ``find_end`` returns (0, 0) for a branch without items.
    position = (segment, behind) if segment is not None else (0, 0)
    now_current = sessions.require_session(db, key).branch
    ending = [name for name, pieces in branch_paths(db, key) if find_end(db, key, pieces) == position]
    if now_current in ending:
        name = now_current
    elif ending:
        name = ending[-1]
    else:
        name = next_free_name(_select_used_names(db, key))
        segment = insert_segment(db, key, *position)
        insert_row(db, "branches", key, name=name, segment=segment, parent=now_current, created=now)
    return make_current(db, key, name)


def find_segment(db: sqlite3.Connection, key: SessionKey, seq: int, pieces: Sequence[SegmentRange]) -> int | None:
    """Return the segment of the range in ``pieces`` that contains item ``seq``, or None."""
    for piece in pieces:
        query = f"SELECT 1 FROM items WHERE {HERE} AND segment = ? AND seq = ?"
        if seq <= piece.until and has_row(db, query, (*pair(key), piece.segment, seq)):
            return piece.segment
    return None


def make_current(db: sqlite3.Connection, key: SessionKey, name: str) -> int:
    """Make a branch the current one, without any check, and return its last segment."""
    db.execute(
        "UPDATE sessions SET branch = :name, segment = (SELECT segment FROM branches WHERE namespace = :namespace"
        " AND session = :session AND name = :name) WHERE namespace = :namespace AND id = :session",
        {"name": name, "namespace": key.namespace, "session": key.id},
    )
    return current_segment(db, key) or 0


def insert_segment(db: sqlite3.Connection, key: SessionKey, parent: int, since: int) -> int:
    """Insert a new segment that begins after item ``since`` of ``parent``, and return its id."""
    # Ids grow, so that a parent always has a smaller id than its child. Branches count too: a damaged file may name a
    # segment that has no row.
    newest = db.execute(f"SELECT coalesce(max(id), 0) FROM segments WHERE {HERE}", pair(key)).fetchone()[0]
    of_branches = db.execute(f"SELECT coalesce(max(segment), 0) FROM branches WHERE {HERE}", pair(key)).fetchone()[0]
    segment = max(int(newest), int(of_branches)) + 1
    insert_row(db, "segments", key, id=segment, parent=parent, since=since)
    return segment


def is_shared(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> bool:
    """Return whether a branch other than the current one shows item ``seq``. The item must be in ``segment``, the last
    segment of the current branch."""
    query = f"SELECT 1 FROM segments WHERE {HERE} AND parent = ? AND since >= ? LIMIT 1"
    return has_row(db, query, (*pair(key), segment, seq))


def move_branch_end(db: sqlite3.Connection, key: SessionKey, segment: int) -> None:
    """Make the current branch end in ``segment``."""
    db.execute(
        f"UPDATE branches SET segment = ? WHERE {HERE}"
        " AND name = (SELECT branch FROM sessions WHERE namespace = ? AND id = ?)",
        (segment, *pair(key), *pair(key)),
    )
    update_session(db, key, segment=segment)


def segment_extents(db: sqlite3.Connection, key: SessionKey) -> dict[int, int]:
    """Map each segment to the sequence number of its last item that any branch shows. The value is END if a branch ends
    in the segment. Segments that no branch shows are missing."""
    extents: dict[int, int] = {}
    for _, pieces in branch_paths(db, key):
        for piece in pieces:
            extents[piece.segment] = max(piece.until, extents.get(piece.segment, 0))
    return extents


def select_segment_ids(db: sqlite3.Connection, key: SessionKey) -> list[int]:
    """Return the ids of all segments, including the root, which has no row."""
    return [0, *(id for (id,) in db.execute(f"SELECT id FROM segments WHERE {HERE}", pair(key)))]


def select_children(db: sqlite3.Connection, key: SessionKey, segment: int, seq: int) -> list[int]:
    """Return the segments that begin directly after item ``seq`` of ``segment``."""
    rows = db.execute(f"SELECT id FROM segments WHERE {HERE} AND parent = ? AND since = ?", (*pair(key), segment, seq))
    return [id for (id,) in rows]


def find_end(
    db: sqlite3.Connection, key: SessionKey, pieces: Sequence[SegmentRange], until: int = END
) -> tuple[int, int]:
    """Return (segment, sequence number) of the newest item of a path, ignoring items after ``until``; (0, 0) if there
    is none."""
    for piece in pieces:
        row = db.execute(
            f"SELECT max(seq) FROM items WHERE {HERE} AND segment = ? AND seq <= ?",
            (*pair(key), piece.segment, min(piece.until, until)),
        ).fetchone()
        if row[0] is not None:
            return piece.segment, int(row[0])
    return 0, 0


def _find_branch_point(db: sqlite3.Connection, key: SessionKey, before: str | None) -> tuple[int, int]:
    """Return (segment, sequence number) of the item after which a new branch begins: the last item before the turn
    ``before`` of the current branch, or, if ``before`` is None, the branch's last item. Raises TurnNotFound."""
    pieces = branch_path(db, key, None)
    if before is None:
        return find_end(db, key, pieces)
    row = db.execute(f"SELECT segment, since FROM turns WHERE {HERE} AND id = ?", (*pair(key), before)).fetchone()
    if row is None or not path_contains(pieces, *row):
        raise TurnNotFound(f"There is no turn {before!r} on this branch.", details={"turn": before})
    # The turn's own segment and ``since`` cannot be used: the item ``since`` may be in an earlier segment, and the new
    # branch must begin in the segment of this item.
    return find_end(db, key, pieces, int(row[1]))


def path_contains(pieces: Sequence[SegmentRange], segment: int, since: int) -> bool:
    """Return whether a path shows the turn that began in ``segment`` after item ``since``."""
    # The comparison is strict: a turn that begins after the last item of the range has no items on the path.
    return any(piece.segment == segment and since < piece.until for piece in pieces)


def _select_used_names(db: sqlite3.Connection, key: SessionKey) -> set[str]:
    """Return the names of all branches that exist or were dropped."""
    rows = db.execute(
        f"SELECT name FROM branches WHERE {HERE} UNION SELECT name FROM dropped_branches WHERE {HERE}",
        (*pair(key), *pair(key)),
    )
    return {name for (name,) in rows}


def _branch_from_row(db: sqlite3.Connection, key: SessionKey, row: tuple[Any, ...]) -> Branch:
    name, parent, segment, created, since, is_current = row
    return Branch(
        name, parent, since, *_measure_path(db, key, path_to_root(db, key, segment)), created, bool(is_current)
    )


def _measure_path(db: sqlite3.Connection, key: SessionKey, pieces: list[SegmentRange]) -> tuple[int, int]:
    """Return (sequence number of the newest item, number of turns) of a path."""
    heads, turns = [0], 0
    for piece in pieces:
        where = (*pair(key), piece.segment, piece.until)
        head = db.execute(f"SELECT max(seq) FROM items WHERE {HERE} AND segment = ? AND seq <= ?", where).fetchone()[0]
        heads.append(head or 0)
        counted = db.execute(f"SELECT count(*) FROM turns WHERE {HERE} AND segment = ? AND since < ?", where)
        turns += counted.fetchone()[0]
    return max(heads), turns


def _validate_name(name: str) -> str:
    serialization.text(name, "name of a branch")
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"A branch name must have 1 to {MAX_NAME} printable characters.")
    return name
