"""SQL for turns: opens them with a lease, appends items, closes them, takes them over from dead owners, and adds
complete turns that did not run here."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, NoReturn

from agent_kernel.core.errors import Conflict, InvalidRequest, LeaseLost, SequenceConflict, TurnNotFound
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, Owner, SessionKey, Turn, new_id
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.tables import grants, items, segments, sessions
from agent_kernel.sessions.tables.rows import (
    HERE,
    TURN_COLUMNS,
    count_changes,
    insert_rows,
    pair,
    sql_limit,
    turn_from_row,
    turn_row,
    update_session,
)
from agent_kernel.sessions.tables.segments import SegmentRange

RENEW_S = 1.0
"""An append renews the lease of its turn only if the last renewal was at least this many seconds ago. So most appends
write one row, and one page, less."""


def open_turn(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> Turn:
    """Open a turn on the current branch and take its lease. Raises SessionBusy, SessionNotFound, and Conflict if the
    session already has a turn with this id."""
    session = sessions.read_end(db, turn.key) or sessions.raise_not_found(turn.key)
    opened = _insert_turn(db, session, turn, now, owner)
    _count_turn(db, opened, now)
    return opened


def add_turn(
    db: sqlite3.Connection,
    turn: Turn,
    messages: Sequence[Message],
    *,
    usage: Mapping[str, float],
    expect_seq: int | None,
    now: float,
) -> list[Item]:
    session = sessions.read_end(db, turn.key) or sessions.begin_session(db, turn.key, now)
    _check_head(session.head, session.head if expect_seq is None else expect_seq)
    _check_paired(messages)
    added = _insert_turn(db, session, replace(turn, state="committed", closed=now, usage=usage), now)
    if not messages:
        _count_turn(db, added, now)
    place = items.AppendPoint(turn.key, turn.id, session.segment, added.cell, added.epoch, session.head, added.ordinal)
    return items.insert_items(db, place, messages, now)


def add_messages(
    db: sqlite3.Connection, key: SessionKey, messages: Sequence[Message], *, record: Mapping[str, Any], now: float
) -> list[Item]:
    _check_paired(messages)
    session = sessions.read_end(db, key) or sessions.begin_session(db, key, now)
    sessions.raise_if_busy(session)
    batches: list[tuple[items.AppendPoint, Sequence[Message]]] = []
    fresh: list[Turn] = []
    head, number, ids = session.head, session.turns, _new_turn_ids()
    for batch in _split_by_turn(messages):
        place = None if _starts_turn(batch[0]) else _newest_turn_end(db, key, session)
        if place is None:
            id, number = next(ids), number + 1
            fresh.append(Turn(id, key, number, "committed", opened=now, closed=now, record=record, since=head))
            place = items.AppendPoint(key, id, session.segment, "", "", head, number)
        batches.append((place, batch))
        head += len(batch)
    insert_rows(db, "turns", [_whole_row(turn, session.segment, now) for turn in fresh])
    return items.insert_batches(db, batches, now) if batches else []


def _split_by_turn(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    starts = [at for at, message in enumerate(messages) if not at or _starts_turn(message)]
    for start, end in pairwise([*starts, len(messages)]):
        yield messages[start:end]


def _starts_turn(message: Message) -> bool:
    """Return whether the message begins a turn, which is true of user messages that a person can see."""
    return message.role == "user" and not message.hidden


def _newest_turn_end(db: sqlite3.Connection, key: SessionKey, session: sessions.SessionEnd) -> items.AppendPoint | None:
    """Return the place at which items can be appended to the newest turn of the current segment; None if the segment
    has no turn. A turn of an earlier segment may also belong to another branch, so nothing is appended to it."""
    row = db.execute(
        f"SELECT id, cell, epoch FROM turns WHERE {HERE} AND segment = ? ORDER BY since DESC, ordinal DESC LIMIT 1",
        (*pair(key), session.segment),
    ).fetchone()
    return items.AppendPoint(key, row[0], session.segment, row[1], row[2], session.head) if row else None


def _new_turn_ids() -> Iterator[str]:
    """Yield ids with more random bits than those of ``new_id``, because an import may create thousands of turns in a
    second."""
    while True:
        begin, random = new_id("turn"), secrets.token_hex(80)
        for at in range(0, 160, 10):
            yield begin + random[at : at + 10]


def extend_turn(db: sqlite3.Connection, turn: Turn, messages: Sequence[Message], now: float) -> list[Item]:
    session = sessions.require_session(db, turn.key)
    sessions.check_no_open_turn(db, turn.key)
    _check_paired(messages)
    newest = select_turns(db, turn.key, segments.branch_path(db, turn.key, None), 1)
    if not newest or newest[0].id != turn.id:
        raise Conflict(f"The turn {turn.id!r} is not the newest one of this branch.", details={"turn": turn.id})
    segment = segments.current_segment(db, turn.key) or 0
    row = db.execute(f"SELECT segment FROM turns WHERE {HERE} AND id = ?", (*pair(turn.key), turn.id)).fetchone()
    if row[0] != segment:
        raise Conflict(
            "The turn also belongs to another branch, so nothing can be added to it.", details={"turn": turn.id}
        )
    place = items.AppendPoint(turn.key, turn.id, segment, newest[0].cell, newest[0].epoch, session.head)
    return items.insert_items(db, place, messages, now)


def append(
    db: sqlite3.Connection, turn: Turn, owner: Owner, messages: Sequence[Message], *, expect_seq: int, now: float
) -> list[Item]:
    lease = _select_lease(db, turn, owner) or _raise_lease_lost(turn)
    _check_head(lease.place.head, expect_seq)
    waiting = call_pairs.pending_calls(lease.pending, messages)
    added = items.insert_items(db, lease.place, messages, now)
    if waiting != lease.pending or not 0 <= now - lease.renewed < RENEW_S:
        db.execute(
            f"UPDATE turns SET pending = ?, heartbeat = ? WHERE {HERE} AND id = ?",
            (json.dumps(waiting), now, *pair(turn.key), turn.id),
        )
    return added


def append_at(
    db: sqlite3.Connection,
    turn: Turn,
    owner: Owner,
    messages: Sequence[Message],
    *,
    expect_seq: int,
    behind: int | None,
    earlier: Sequence[Sequence[Message]],
    now: float,
) -> list[Item]:
    lease = _select_lease(db, turn, owner) or _raise_lease_lost(turn)
    opened = select_turn(db, turn.key, turn.id) or _raise_lease_lost(turn)
    _check_head(lease.place.head, expect_seq)
    # A turn is moved only while it is empty: items stay in the segment in which they were inserted.
    if lease.place.head != opened.since:
        raise Conflict("The turn already has items, so it cannot be moved to another place.", details={"turn": turn.id})
    segment = lease.place.segment if behind is None else _segment_after(db, turn.key, behind, now)
    # The earlier turns get the ordinal of the open turn and the following ones; the open turn then begins after their
    # items.
    _move_open_turn(db, opened, segment, opened.ordinal + len(earlier), opened.since + sum(map(len, earlier)))
    place, ids = replace(lease.place, segment=segment), _new_turn_ids()
    for ordinal, batch in enumerate(earlier, start=opened.ordinal):
        _check_paired(batch)
        appended = Turn(next(ids), turn.key, ordinal, "committed", opened=now, closed=now, since=place.head)
        insert_turn_row(db, appended, segment, now)
        items.insert_items(db, replace(place, turn=appended.id, cell="", epoch=""), batch, now)
        place = replace(place, head=place.head + len(batch))
    return append(db, turn, owner, messages, expect_seq=place.head, now=now)


def _raise_lease_lost(turn: Turn) -> NoReturn:
    raise LeaseLost("The turn is closed or belongs to another process.", details={"turn": turn.id})


def _segment_after(db: sqlite3.Connection, key: SessionKey, seq: int, now: float) -> int:
    """Make a branch that ends at item ``seq`` the current one, and return its last segment. Raises InvalidRequest if
    the item is between a tool call and its results, because the call would have no result on that branch."""
    segment = segments.switch_to_item(db, key, seq, now)
    messages = [item.message for item in items.select_last_unit(db, key, segments.path_to_root(db, key, segment))]
    if call_pairs.pending_calls({}, messages):
        raise InvalidRequest(
            f"A branch cannot begin after item {seq}, because the tool calls before it would have no results.",
            hint="Choose the last result of these calls, or an item before the calls.",
            details={"behind": seq},
        )
    return segment


def _move_open_turn(db: sqlite3.Connection, turn: Turn, segment: int, ordinal: int, since: int) -> None:
    """Move an open turn that has no items to another segment. Its new ordinal and ``since`` put it after the turns that
    take its place."""
    db.execute(
        f"UPDATE turns SET segment = ?, ordinal = ?, since = ? WHERE {HERE} AND id = ?",
        (segment, ordinal, since, *pair(turn.key), turn.id),
    )
    update_session(db, turn.key, turns=ordinal)


def heartbeat(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> bool:
    """Renew the lease. Returns False if the turn is closed or belongs to another owner."""
    db.execute(
        f"UPDATE turns SET heartbeat = ? WHERE {HERE} AND id = ? AND state = 'open' AND instance = ?",
        (now, *pair(turn.key), turn.id, owner.instance),
    )
    return count_changes(db) == 1


@dataclass(frozen=True, slots=True)
class TurnClosing:
    """The values with which a turn is closed. ``record`` is merged into the turn's record."""

    state: TurnState
    reason: str
    usage: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def close_turn(db: sqlite3.Connection, turn: Turn, owner: Owner, closing: TurnClosing, now: float) -> bool:
    """Close the turn with results for its unanswered calls. Returns False if the turn is not open or belongs to another
    owner."""
    lease = _select_lease(db, turn, owner)
    if lease is None:
        return False
    results = grants.close_questions(db, turn, lease.pending, closing.state, closing.reason)
    items.insert_items(db, lease.place, results, now)
    db.execute(
        f"UPDATE turns SET state = ?, reason = ?, usage = ?, closed = ?, pending = '{{}}' WHERE {HERE} AND id = ?",
        (closing.state, closing.reason, serialization.encode_value(closing.usage), now, *pair(turn.key), turn.id),
    )
    if closing.record and (stored := select_turn(db, turn.key, turn.id)):
        record = serialization.encode_value({**stored.record, **closing.record})
        db.execute(f"UPDATE turns SET record = ? WHERE {HERE} AND id = ?", (record, *pair(turn.key), turn.id))
    sessions.mark_changed(db, turn.key, now)
    return True


def select_abandoned(db: sqlite3.Connection, stale: Callable[[Owner, float], bool]) -> list[tuple[Turn, Owner, float]]:
    """Return (turn, owner, time of the last heartbeat) of the open turns for which ``stale(owner, heartbeat)`` is
    true."""
    rows = db.execute(f"SELECT {TURN_COLUMNS}, owner, heartbeat FROM turns WHERE state = 'open'").fetchall()
    leases = [(turn_from_row(row[:-2]), Owner(**json.loads(row[-2])), float(row[-1])) for row in rows]
    return [(turn, owner, seen) for turn, owner, seen in leases if stale(owner, seen)]


def take_over(db: sqlite3.Connection, turn: Turn, owner: Owner, beat: float, *, reason: str, now: float) -> Turn | None:
    """Close the turn of an owner whose lease is stale, as interrupted, and return it. ``beat`` is the time of
    the heartbeat that was found stale; if the lease was renewed since, nothing is changed and None is returned."""
    row = db.execute(
        # The heartbeat is compared again: if it has changed since then, the owner is alive after all.
        f"SELECT 1 FROM turns WHERE {HERE} AND id = ? AND heartbeat = ?",
        (*pair(turn.key), turn.id, beat),
    ).fetchone()
    if not row or not close_turn(db, turn, owner, TurnClosing("interrupted", reason), now):
        return None
    return select_turn(db, turn.key, turn.id)


def select_turn(db: sqlite3.Connection, key: SessionKey, id: str) -> Turn | None:
    row = db.execute(f"SELECT {TURN_COLUMNS} FROM turns WHERE {HERE} AND id = ?", (*pair(key), id)).fetchone()
    return turn_from_row(row) if row else None


def select_turn_by_id(db: sqlite3.Connection, namespace: str, id: str) -> Turn | None:
    """Return the turn with this id in any session of the namespace; if several sessions have such a turn, the turn that
    was opened last."""
    row = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE namespace = ? AND id = ? ORDER BY opened DESC, rowid DESC LIMIT 1",
        (namespace, id),
    ).fetchone()
    return turn_from_row(row) if row else None


def select_turns(
    db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], limit: int | None, before: str = ""
) -> list[Turn]:
    """Return at most ``limit`` of the newest turns of a branch, given as its ``path``, in order; with ``before``, the
    newest turns before the turn with this id."""
    at, end = _locate(db, key, path, before) if before else (0, (segments.END, 0))
    newest: list[Turn] = []
    for piece in path[at:]:
        left = None if limit is None else limit - len(newest)
        rows = db.execute(
            # ``since < until``: a path contains those turns of a parent segment that began before the branch point. The
            # row-value comparison selects the turns before ``before``; it applies only to the first range.
            f"SELECT {TURN_COLUMNS} FROM turns WHERE {HERE} AND segment = ? AND since < ? AND (since, ordinal) < (?, ?)"
            " ORDER BY since DESC, ordinal DESC LIMIT ?",
            (*pair(key), piece.segment, piece.until, *end, sql_limit(left)),
        )
        end = (segments.END, 0)
        newest += [turn_from_row(row) for row in rows]
        if len(newest) == limit:
            break
    return newest[::-1]


def _locate(
    db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], id: str
) -> tuple[int, tuple[int, int]]:
    """Find the turn ``id`` on a branch, given as its ``path``. Return the index of the range of the path that contains
    the turn, and the turn's position in that segment: the sequence number of the item before the turn, and the turn's
    number among those that begin after this item. Raises TurnNotFound if the branch has no such turn."""
    row = db.execute(f"SELECT segment, since, ordinal FROM turns WHERE {HERE} AND id = ?", (*pair(key), id)).fetchone()
    for at, piece in enumerate(path):
        if row is not None and row[0] == piece.segment and row[1] < piece.until:
            return at, (row[1], row[2])
    raise TurnNotFound(f"There is no turn {id!r} on this branch.", details={"turn": id})


def select_all_turns(db: sqlite3.Connection, key: SessionKey) -> list[Turn]:
    rows = db.execute(f"SELECT {TURN_COLUMNS} FROM turns WHERE {HERE} ORDER BY ordinal", pair(key))
    return [turn_from_row(row) for row in rows]


def select_cell_turns(db: sqlite3.Connection, key: SessionKey, cell: str, limit: int | None) -> list[Turn]:
    rows = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE {HERE} AND cell = ? AND cell <> '' ORDER BY ordinal DESC LIMIT ?",
        (*pair(key), cell, sql_limit(limit)),
    ).fetchall()
    return [turn_from_row(row) for row in reversed(rows)]


def insert_turn_row(
    db: sqlite3.Connection, turn: Turn, segment: int, heartbeat: float, owner: Owner | None = None
) -> None:
    """Insert the row of a turn. ``owner`` and ``heartbeat`` (time of the last renewal) form its lease; a closed turn
    has no owner."""
    insert_rows(db, "turns", [_whole_row(turn, segment, heartbeat, owner)])


def _whole_row(turn: Turn, segment: int, heartbeat: float, owner: Owner | None = None) -> tuple[object, ...]:
    """Return the values of all columns for a turn that has no pending calls."""
    lease = (json.dumps(asdict(owner)), owner.instance) if owner else ("{}", "")
    *row, since = turn_row(turn)
    return (*row, "{}", *lease, heartbeat, segment, since)


def _insert_turn(
    db: sqlite3.Connection, session: sessions.SessionEnd, turn: Turn, now: float, owner: Owner | None = None
) -> Turn:
    """Insert a turn with the next ordinal and return it as stored. The session's turn count is updated separately."""
    sessions.raise_if_busy(session)
    added = replace(turn, ordinal=session.turns + 1, since=session.head)
    try:
        insert_turn_row(db, added, session.segment, now, owner)
    except sqlite3.IntegrityError as error:
        raise Conflict(f"A turn {turn.id!r} exists already.", details={"turn": turn.id}) from error
    return added


def _count_turn(db: sqlite3.Connection, turn: Turn, now: float) -> None:
    db.execute(
        "UPDATE sessions SET turns = ?, revision = revision + 1, updated = ?, accessed = ?"
        " WHERE namespace = ? AND id = ?",
        (turn.ordinal, now, now, *pair(turn.key)),
    )


def _check_head(head: int, expect_seq: int) -> None:
    if head != expect_seq:
        raise SequenceConflict(
            f"The session has changed: its last item is {head}, and the request expects {expect_seq}.",
            hint="Read the new items first.",
            details={"head": head},
        )


def _check_paired(messages: Sequence[Message]) -> None:
    if waiting := call_pairs.pending_calls({}, messages):
        raise InvalidRequest(f"These calls have no result: {', '.join(waiting)}.", hint="Add a result for each call.")


@dataclass(frozen=True, slots=True)
class _Lease:
    """An open turn that belongs to the owner who requested it. ``pending`` are its calls without a result (id -> name),
    ``place`` is where its next items are inserted, and ``renewed`` is the time of the last heartbeat or append that
    renewed it."""

    pending: Mapping[str, str]
    place: items.AppendPoint
    renewed: float


def _select_lease(db: sqlite3.Connection, turn: Turn, owner: Owner) -> _Lease | None:
    """Return the lease, or None if the turn is not open or not this owner's."""
    row = db.execute(
        "SELECT pending, heartbeat, t.segment, cell, epoch, head FROM turns AS t JOIN sessions AS s"
        " ON s.namespace = t.namespace AND s.id = t.session"
        " WHERE t.namespace = ? AND t.session = ? AND t.id = ? AND t.state = 'open' AND t.instance = ?",
        (*pair(turn.key), turn.id, owner.instance),
    ).fetchone()
    return _Lease(json.loads(row[0]), items.AppendPoint(turn.key, turn.id, *row[2:]), row[1]) if row else None
