"""Turns: opened with a lease, appended to, closed, taken over; and whole ones that happened elsewhere."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from agent_kernel.core.errors import Conflict, InvalidRequest, LeaseLost, SequenceConflict, TurnNotFound
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, Owner, SessionKey, Turn, new_id
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.tables import grants, items, segments, sessions
from agent_kernel.sessions.tables.rows import HERE, TURN, changed_rows, pair, sql_limit, turn_of, turn_row
from agent_kernel.sessions.tables.segments import Piece

_INSERT = f"INSERT INTO turns ({TURN}, segment, pending, owner, instance, heartbeat) VALUES ({', '.join('?' * 20)})"


def open_turn(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> Turn:
    session = sessions.end(db, turn.key) or sessions.missing(turn.key)
    opened = _insert(db, session, turn, ("{}", json.dumps(asdict(owner)), owner.instance, now))
    _count(db, opened, now)
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
    session = sessions.end(db, turn.key) or sessions.begun(db, turn.key, now)
    _expect(session.head, session.head if expect_seq is None else expect_seq)
    _paired(messages)
    added = _insert(db, session, turn, ("{}", "{}", "", now), state="committed", closed=now, usage=usage)
    if not messages:
        _count(db, added, now)
    place = items.Place(turn.key, turn.id, session.segment, added.cell, added.epoch, session.head, added.ordinal)
    return items.insert(db, place, messages, now)


def add_messages(
    db: sqlite3.Connection, key: SessionKey, messages: Sequence[Message], *, record: Mapping[str, Any], now: float
) -> list[Item]:
    _paired(messages)
    session = sessions.end(db, key) or sessions.begun(db, key, now)
    sessions.must_be_idle(session)
    added: list[Item] = []
    for batch in _by_turn(messages):
        place = None if _begins(batch[0]) else _newest(db, key, session)
        if place is None:
            turn = Turn(_id(), key, state="committed", opened=now, closed=now, record=record)
            ordinal = _insert(db, session, turn, ("{}", "{}", "", now)).ordinal
            place = items.Place(key, turn.id, session.segment, "", "", session.head, ordinal)
            session = replace(session, turns=session.turns + 1)
        added += items.insert(db, place, batch, now)
        session = replace(session, head=session.head + len(batch))
    return added


def _by_turn(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    starts = [at for at, message in enumerate(messages) if not at or _begins(message)]
    for start, end in pairwise([*starts, len(messages)]):
        yield messages[start:end]


def _begins(message: Message) -> bool:
    return message.role == "user" and not message.hidden


def _newest(db: sqlite3.Connection, key: SessionKey, session: sessions.End) -> items.Place | None:
    """The end of the newest turn of this segment; one of another segment belongs to another branch too."""
    row = db.execute(
        f"SELECT id, cell, epoch FROM turns WHERE {HERE} AND segment = ? ORDER BY since DESC, ordinal DESC LIMIT 1",
        (*pair(key), session.segment),
    ).fetchone()
    return items.Place(key, row[0], session.segment, row[1], row[2], session.head) if row else None


def _id() -> str:
    """Of turns that come by the thousand in one second."""
    return f"{new_id('turn')}{secrets.token_hex(5)}"


def extend_turn(db: sqlite3.Connection, turn: Turn, messages: Sequence[Message], now: float) -> list[Item]:
    session = sessions.found(db, turn.key)
    sessions.no_open_turn(db, turn.key)
    _paired(messages)
    newest = listed(db, turn.key, segments.of_branch(db, turn.key, None), 1)
    if not newest or newest[0].id != turn.id:
        raise Conflict(f"The turn {turn.id!r} is not the newest of this branch.", details={"turn": turn.id})
    segment = segments.current(db, turn.key) or 0
    row = db.execute(f"SELECT segment FROM turns WHERE {HERE} AND id = ?", (*pair(turn.key), turn.id)).fetchone()
    if row[0] != segment:
        raise Conflict("The turn belongs to another branch too: it does not grow.", details={"turn": turn.id})
    place = items.Place(turn.key, turn.id, segment, newest[0].cell, newest[0].epoch, session.head)
    return items.insert(db, place, messages, now)


def append(
    db: sqlite3.Connection, turn: Turn, owner: Owner, messages: Sequence[Message], *, expect_seq: int, now: float
) -> list[Item]:
    lease = _leased(db, turn, owner)
    if lease is None:
        raise LeaseLost("This turn is closed or another process's.", details={"turn": turn.id})
    _expect(lease.place.head, expect_seq)
    waiting = call_pairs.unanswered(lease.pending, messages)
    added = items.insert(db, lease.place, messages, now)
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
    lease = _leased(db, turn, owner)
    opened = found(db, turn.key, turn.id)
    if lease is None or opened is None:
        raise LeaseLost("This turn is closed or another process's.", details={"turn": turn.id})
    _expect(lease.place.head, expect_seq)
    if lease.place.head != opened.since:
        raise Conflict("The turn has items already: it stays where it is.", details={"turn": turn.id})
    segment = lease.place.segment if behind is None else _behind(db, turn.key, behind, now)
    _move(db, opened, segment, opened.ordinal + len(earlier), opened.since + sum(map(len, earlier)))
    place = replace(lease.place, segment=segment)
    for ordinal, batch in enumerate(earlier, start=opened.ordinal):
        _paired(batch)
        said = Turn(_id(), turn.key, ordinal, "committed", opened=now, closed=now, since=place.head)
        db.execute(_INSERT, (*turn_row(said), segment, "{}", "{}", "", now))
        items.insert(db, replace(place, turn=said.id, cell="", epoch=""), batch, now)
        place = replace(place, head=place.head + len(batch))
    return append(db, turn, owner, messages, expect_seq=place.head, now=now)


def _behind(db: sqlite3.Connection, key: SessionKey, seq: int, now: float) -> int:
    """The segment that goes on behind an item. Raises InvalidRequest inside a round: its calls would stay without
    their results there."""
    segment = segments.follow(db, key, seq, now)
    said = [item.message for item in items.last_unit(db, key, segments.way(db, key, segment))]
    if call_pairs.unanswered({}, said):
        raise InvalidRequest(f"Item {seq} stands between calls and their results.", details={"behind": seq})
    return segment


def _move(db: sqlite3.Connection, turn: Turn, segment: int, ordinal: int, since: int) -> None:
    """An open turn without items begins elsewhere, behind turns that took its place."""
    db.execute(
        f"UPDATE turns SET segment = ?, ordinal = ?, since = ? WHERE {HERE} AND id = ?",
        (segment, ordinal, since, *pair(turn.key), turn.id),
    )
    db.execute("UPDATE sessions SET turns = ? WHERE namespace = ? AND id = ?", (ordinal, *pair(turn.key)))


def heartbeat(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> bool:
    db.execute(
        f"UPDATE turns SET heartbeat = ? WHERE {HERE} AND id = ? AND state = 'open' AND instance = ?",
        (now, *pair(turn.key), turn.id, owner.instance),
    )
    return changed_rows(db) == 1


@dataclass(frozen=True, slots=True)
class Closing:
    """How a turn ended; ``record`` is added to what it has."""

    state: TurnState
    reason: str
    usage: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


def close_turn(db: sqlite3.Connection, turn: Turn, owner: Owner, closing: Closing, now: float) -> bool:
    lease = _leased(db, turn, owner)
    if lease is None:
        return False
    results = grants.closing(db, turn, lease.pending, closing.state, closing.reason)
    items.insert(db, lease.place, results, now)
    db.execute(
        "UPDATE turns SET state = ?, reason = ?, usage = ?, closed = ?, pending = '{}'" + f" WHERE {HERE} AND id = ?",
        (closing.state, closing.reason, serialization.encode_json(closing.usage), now, *pair(turn.key), turn.id),
    )
    if closing.record and (kept := found(db, turn.key, turn.id)):
        record = serialization.encode_json({**kept.record, **closing.record})
        db.execute(f"UPDATE turns SET record = ? WHERE {HERE} AND id = ?", (record, *pair(turn.key), turn.id))
    sessions.changed(db, turn.key, now)
    return True


def abandoned(db: sqlite3.Connection, stale: Callable[[Owner, float], bool]) -> list[tuple[Turn, Owner, float]]:
    """Open turns whose (owner, heartbeat) is ``stale``."""
    rows = db.execute(f"SELECT {TURN}, owner, heartbeat FROM turns WHERE state = 'open'").fetchall()
    leases = [(turn_of(row[:-2]), Owner(**json.loads(row[-2])), float(row[-1])) for row in rows]
    return [(turn, owner, seen) for turn, owner, seen in leases if stale(owner, seen)]


def take_over(db: sqlite3.Connection, turn: Turn, owner: Owner, seen: float, *, reason: str, now: float) -> Turn | None:
    """Closes the turn as interrupted if its lease is still the one that was judged, else None."""
    row = db.execute(
        f"SELECT 1 FROM turns WHERE {HERE} AND id = ? AND heartbeat = ?", (*pair(turn.key), turn.id, seen)
    ).fetchone()
    if not row or not close_turn(db, turn, owner, Closing("interrupted", reason), now):
        return None
    return found(db, turn.key, turn.id)


def found(db: sqlite3.Connection, key: SessionKey, id: str) -> Turn | None:
    row = db.execute(f"SELECT {TURN} FROM turns WHERE {HERE} AND id = ?", (*pair(key), id)).fetchone()
    return turn_of(row) if row else None


def by_id(db: sqlite3.Connection, namespace: str, id: str) -> Turn | None:
    row = db.execute(
        f"SELECT {TURN} FROM turns WHERE namespace = ? AND id = ? ORDER BY opened DESC, rowid DESC LIMIT 1",
        (namespace, id),
    ).fetchone()
    return turn_of(row) if row else None


def listed(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], limit: int | None, before: str = ""
) -> list[Turn]:
    """The newest of a way, in order; of those before a turn on it."""
    at, end = _stands(db, key, way, before) if before else (0, (segments.END, 0))
    newest: list[Turn] = []
    for piece in way[at:]:
        left = None if limit is None else limit - len(newest)
        rows = db.execute(
            f"SELECT {TURN} FROM turns WHERE {HERE} AND segment = ? AND since < ? AND (since, ordinal) < (?, ?)"
            " ORDER BY since DESC, ordinal DESC LIMIT ?",
            (*pair(key), piece.segment, piece.until, *end, sql_limit(left)),
        )
        end = (segments.END, 0)
        newest += [turn_of(row) for row in rows]
        if len(newest) == limit:
            break
    return newest[::-1]


def _stands(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], id: str) -> tuple[int, tuple[int, int]]:
    """On which piece of the way a turn is, and its (since, ordinal) there."""
    row = db.execute(f"SELECT segment, since, ordinal FROM turns WHERE {HERE} AND id = ?", (*pair(key), id)).fetchone()
    for at, piece in enumerate(way):
        if row is not None and row[0] == piece.segment and row[1] < piece.until:
            return at, (row[1], row[2])
    raise TurnNotFound(f"There is no turn {id!r} on this branch.", details={"turn": id})


def everything(db: sqlite3.Connection, key: SessionKey) -> list[Turn]:
    rows = db.execute(f"SELECT {TURN} FROM turns WHERE {HERE} ORDER BY ordinal", pair(key))
    return [turn_of(row) for row in rows]


def of_cell(db: sqlite3.Connection, key: SessionKey, cell: str, limit: int | None) -> list[Turn]:
    rows = db.execute(
        f"SELECT {TURN} FROM turns WHERE {HERE} AND cell = ? AND cell <> '' ORDER BY ordinal DESC LIMIT ?",
        (*pair(key), cell, sql_limit(limit)),
    ).fetchall()
    return [turn_of(row) for row in reversed(rows)]


def _insert(db: sqlite3.Connection, session: sessions.End, turn: Turn, lease: tuple[object, ...], **facts: Any) -> Turn:
    """The turn as it is stored, with ``facts`` about it; its session does not count it yet."""
    sessions.must_be_idle(session)
    added = replace(turn, ordinal=session.turns + 1, since=session.head, **facts)
    try:
        db.execute(_INSERT, (*turn_row(added), session.segment, *lease))
    except sqlite3.IntegrityError as error:
        raise Conflict(f"There is a turn {turn.id!r} already.", details={"turn": turn.id}) from error
    return added


def _count(db: sqlite3.Connection, turn: Turn, now: float) -> None:
    db.execute(
        "UPDATE sessions SET turns = ?, revision = revision + 1, updated = ?, accessed = ?"
        " WHERE namespace = ? AND id = ?",
        (turn.ordinal, now, now, *pair(turn.key)),
    )


def _expect(head: int, expect_seq: int) -> None:
    if head != expect_seq:
        raise SequenceConflict(
            f"The session is at item {head}, not {expect_seq}.", hint="Read what is new.", details={"head": head}
        )


def _paired(messages: Sequence[Message]) -> None:
    waiting = call_pairs.unanswered({}, messages)
    if waiting:
        raise InvalidRequest(f"These calls have no result: {', '.join(waiting)}.", hint="Add one result for each.")


@dataclass(frozen=True, slots=True)
class _Lease:
    """An open turn, held by who asks; ``pending`` are the calls without a result."""

    pending: Mapping[str, str]
    place: items.Place


def _leased(db: sqlite3.Connection, turn: Turn, owner: Owner) -> _Lease | None:
    """None when the turn is not open and this owner's."""
    row = db.execute(
        "SELECT pending, t.segment, cell, epoch, head FROM turns AS t JOIN sessions AS s"
        " ON s.namespace = t.namespace AND s.id = t.session"
        " WHERE t.namespace = ? AND t.session = ? AND t.id = ? AND t.state = 'open' AND t.instance = ?",
        (*pair(turn.key), turn.id, owner.instance),
    ).fetchone()
    return _Lease(json.loads(row[0]), items.Place(turn.key, turn.id, *row[1:])) if row else None
