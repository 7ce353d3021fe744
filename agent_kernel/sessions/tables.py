"""What the SQLite store does in its tables, one function per operation, each inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agent_kernel.errors import Conflict, LeaseLost, SequenceConflict, SessionBusy, SessionNotFound
from agent_kernel.events import TurnState
from agent_kernel.messages import Media, Message
from agent_kernel.sessions import pairs, stored
from agent_kernel.sessions.model import Item, Owner, Session, SessionKey, Turn

_SESSION = "namespace, id, title, created, updated, head, revision, turns"
_TURN = "namespace, session, id, ordinal, state, reason, cell, epoch, location, model, opened, closed, usage, record"
_HERE = "namespace = ? AND session = ?"

# ------------------------------------------------------------------------------------------------- sessions


def create(db: sqlite3.Connection, key: SessionKey, title: str, now: float) -> Session:
    db.execute(
        "INSERT INTO sessions (namespace, id, title, created, updated, revision) VALUES (?, ?, ?, ?, ?, 1)"
        " ON CONFLICT DO NOTHING",
        (key.namespace, key.id, title, now, now),
    )
    return found(db, key)


def info(db: sqlite3.Connection, key: SessionKey) -> Session | None:
    row = db.execute(f"SELECT {_SESSION} FROM sessions WHERE namespace = ? AND id = ?", _pair(key)).fetchone()
    return Session(SessionKey(row[0], row[1]), *row[2:]) if row else None


def found(db: sqlite3.Connection, key: SessionKey) -> Session:
    session = info(db, key)
    if session is None:
        raise SessionNotFound(f"There is no session {key.id!r}.", details={"session": key.id})
    return session


def listed(db: sqlite3.Connection, namespace: str, limit: int | None) -> list[Session]:
    rows = db.execute(
        f"SELECT {_SESSION} FROM sessions WHERE namespace = ? ORDER BY updated DESC, rowid DESC LIMIT ?",
        (namespace, _sql_limit(limit)),
    )
    return [Session(SessionKey(row[0], row[1]), *row[2:]) for row in rows]


def rename(db: sqlite3.Connection, key: SessionKey, title: str, now: float) -> None:
    found(db, key)
    db.execute("UPDATE sessions SET title = ? WHERE namespace = ? AND id = ?", (title, *_pair(key)))
    _touch(db, key, now)


def clear(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    found(db, key)
    _no_open_turn(db, key)
    _remove_items(db, key)
    db.execute("UPDATE sessions SET head = 0, turns = 0 WHERE namespace = ? AND id = ?", _pair(key))
    _touch(db, key, now)


def delete(db: sqlite3.Connection, key: SessionKey) -> bool:
    if info(db, key) is None:
        return False
    _no_open_turn(db, key)
    _remove_items(db, key)
    db.execute(f"DELETE FROM bindings WHERE {_HERE}", _pair(key))
    db.execute("DELETE FROM sessions WHERE namespace = ? AND id = ?", _pair(key))
    return True


def _no_open_turn(db: sqlite3.Connection, key: SessionKey) -> None:
    row = db.execute(f"SELECT id FROM turns WHERE {_HERE} AND state = 'open'", _pair(key)).fetchone()
    if row:
        raise SessionBusy(
            "Another turn of this session is running.", hint="Wait for it or stop it.", details={"turn": row[0]}
        )


def _remove_items(db: sqlite3.Connection, key: SessionKey) -> None:
    """Media that other sessions of the namespace name stay."""
    hashes = db.execute(f"SELECT DISTINCT hash FROM media WHERE {_HERE}", _pair(key)).fetchall()
    for table in ("items", "turns", "media"):
        db.execute(f"DELETE FROM {table} WHERE {_HERE}", _pair(key))
    db.executemany(
        "DELETE FROM blobs WHERE namespace = :namespace AND hash = :hash"
        " AND NOT EXISTS (SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash)",
        [{"namespace": key.namespace, "hash": digest} for (digest,) in hashes],
    )


def _touch(db: sqlite3.Connection, key: SessionKey, now: float) -> None:
    db.execute(
        "UPDATE sessions SET revision = revision + 1, updated = ? WHERE namespace = ? AND id = ?", (now, *_pair(key))
    )


# ---------------------------------------------------------------------------------------------------- turns


def open_turn(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> Turn:
    ordinal = found(db, turn.key).turns + 1
    _no_open_turn(db, turn.key)
    if _turn(db, turn.key, turn.id):
        raise Conflict(f"There is a turn {turn.id!r} already.", details={"turn": turn.id})
    opened = replace(turn, ordinal=ordinal)
    lease = ("{}", json.dumps(asdict(owner)), owner.instance, now)
    db.execute(
        f"INSERT INTO turns ({_TURN}, pending, owner, instance, heartbeat) VALUES ({', '.join('?' * 18)})",
        (*_turn_row(opened), *lease),
    )
    db.execute("UPDATE sessions SET turns = ? WHERE namespace = ? AND id = ?", (ordinal, *_pair(turn.key)))
    _touch(db, turn.key, now)
    return opened


def append(
    db: sqlite3.Connection, turn: Turn, owner: Owner, messages: Sequence[Message], *, expect_seq: int, now: float
) -> list[Item]:
    lease = _leased(db, turn, owner)
    if lease is None:
        raise LeaseLost("This turn is closed or another process's.", details={"turn": turn.id})
    if lease.head != expect_seq:
        raise SequenceConflict(
            f"The session is at item {lease.head}, not {expect_seq}.",
            hint="Read what is new.",
            details={"head": lease.head},
        )
    waiting = pairs.unanswered(lease.pending, messages)
    _keep(db, turn.key, stored.media(messages, lambda digest: _names(db, turn.key, digest)))
    items = _insert(db, turn, lease, messages, now)
    db.execute(
        f"UPDATE turns SET pending = ?, heartbeat = ? WHERE {_HERE} AND id = ?",
        (json.dumps(waiting), now, *_pair(turn.key), turn.id),
    )
    return items


def heartbeat(db: sqlite3.Connection, turn: Turn, owner: Owner, now: float) -> bool:
    done = db.execute(
        f"UPDATE turns SET heartbeat = ? WHERE {_HERE} AND id = ? AND state = 'open' AND instance = ?",
        (now, *_pair(turn.key), turn.id, owner.instance),
    )
    return done.rowcount == 1


def close_turn(
    db: sqlite3.Connection,
    turn: Turn,
    owner: Owner,
    *,
    state: TurnState,
    reason: str,
    usage: Mapping[str, float],
    now: float,
) -> bool:
    lease = _leased(db, turn, owner)
    if lease is None:
        return False
    _insert(db, turn, lease, pairs.answers(lease.pending, reason), now)
    db.execute(
        "UPDATE turns SET state = ?, reason = ?, usage = ?, closed = ?, pending = '{}'" + f" WHERE {_HERE} AND id = ?",
        (state, reason, stored.encode_json(usage), now, *_pair(turn.key), turn.id),
    )
    _touch(db, turn.key, now)
    return True


def abandoned(db: sqlite3.Connection, stale: Callable[[Owner, float], bool]) -> list[tuple[Turn, Owner, float]]:
    """Open turns whose (owner, heartbeat) is ``stale``."""
    rows = db.execute(f"SELECT {_TURN}, owner, heartbeat FROM turns WHERE state = 'open'").fetchall()
    leases = [(_turn_of(row[:-2]), Owner(**json.loads(row[-2])), float(row[-1])) for row in rows]
    return [(turn, owner, seen) for turn, owner, seen in leases if stale(owner, seen)]


def take_over(db: sqlite3.Connection, turn: Turn, owner: Owner, seen: float, *, reason: str, now: float) -> Turn | None:
    """Closes the turn as interrupted if its lease is still the one that was judged, else None."""
    row = db.execute(
        f"SELECT 1 FROM turns WHERE {_HERE} AND id = ? AND heartbeat = ?", (*_pair(turn.key), turn.id, seen)
    ).fetchone()
    if not row or not close_turn(db, turn, owner, state="interrupted", reason=reason, usage={}, now=now):
        return None
    return _turn(db, turn.key, turn.id)


@dataclass(frozen=True, slots=True)
class _Lease:
    """An open turn, held by who asks, and the head of its session; ``pending`` are the calls without a result."""

    pending: Mapping[str, str]
    cell: str
    epoch: str
    head: int


def _leased(db: sqlite3.Connection, turn: Turn, owner: Owner) -> _Lease | None:
    """None when the turn is not open and this owner's."""
    row = db.execute(
        "SELECT pending, cell, epoch, head FROM turns AS t JOIN sessions AS s"
        " ON s.namespace = t.namespace AND s.id = t.session"
        " WHERE t.namespace = ? AND t.session = ? AND t.id = ? AND t.state = 'open' AND t.instance = ?",
        (*_pair(turn.key), turn.id, owner.instance),
    ).fetchone()
    return _Lease(json.loads(row[0]), *row[1:]) if row else None


def _keep(db: sqlite3.Connection, key: SessionKey, media: Mapping[str, Media]) -> None:
    rows = [(key.namespace, medium.hash, medium.mime, medium.size, medium.data) for medium in media.values()]
    if rows:
        db.executemany(
            "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
        )


def _insert(db: sqlite3.Connection, turn: Turn, lease: _Lease, messages: Sequence[Message], now: float) -> list[Item]:
    if not messages:
        return []
    here = _pair(turn.key)
    numbered = [(seq, said, stored.encode(said)) for seq, said in enumerate(messages, start=lease.head + 1)]
    db.executemany(
        "INSERT INTO items (namespace, session, seq, turn, role, kind, call_id, body, cell, epoch, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*here, seq, turn.id, said.role, _kind(said), said.call_id, body, lease.cell, lease.epoch, now)
            for seq, said, body in numbered
        ],
    )
    named = [(*here, medium.hash, seq) for seq, said, _ in numbered for medium in said.media]
    if named:
        db.executemany(
            "INSERT INTO media (namespace, session, hash, seq) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", named
        )
    db.execute(
        "UPDATE sessions SET head = ?, revision = revision + 1, updated = ? WHERE namespace = ? AND id = ?",
        (lease.head + len(messages), now, *here),
    )
    return [Item(seq, turn.id, stored.decode(body), now) for seq, _, body in numbered]


def _kind(message: Message) -> str:
    return "result" if message.role == "tool" else "calls" if message.calls else "message"


# -------------------------------------------------------------------------------------------------- history


def latest(db: sqlite3.Connection, key: SessionKey, limit: int | None, *, failed: bool) -> list[Item]:
    of_failed = "SELECT id FROM turns WHERE namespace = :namespace AND session = :session AND state = 'failed'"
    rows = db.execute(
        "SELECT seq, turn, body, time FROM items WHERE namespace = :namespace AND session = :session"
        f"{'' if failed else f' AND turn NOT IN ({of_failed})'} ORDER BY seq DESC LIMIT :limit",
        {"namespace": key.namespace, "session": key.id, "limit": _sql_limit(limit)},
    ).fetchall()
    return pairs.whole([Item(seq, turn, stored.decode(body), time) for seq, turn, body, time in reversed(rows)])


def turns(db: sqlite3.Connection, key: SessionKey, limit: int | None) -> list[Turn]:
    rows = db.execute(
        f"SELECT {_TURN} FROM turns WHERE {_HERE} ORDER BY ordinal DESC LIMIT ?", (*_pair(key), _sql_limit(limit))
    ).fetchall()
    return [_turn_of(row) for row in reversed(rows)]


def blob(db: sqlite3.Connection, key: SessionKey, digest: str) -> bytes | None:
    if not _names(db, key, digest):
        return None
    row = db.execute("SELECT data FROM blobs WHERE namespace = ? AND hash = ?", (key.namespace, digest)).fetchone()
    return bytes(row[0]) if row else None


def _names(db: sqlite3.Connection, key: SessionKey, digest: str) -> bool:
    return (
        db.execute(f"SELECT 1 FROM media WHERE {_HERE} AND hash = ? LIMIT 1", (*_pair(key), digest)).fetchone()
        is not None
    )


# ------------------------------------------------------------------------------------------------- bindings


def bind(db: sqlite3.Connection, key: SessionKey, root: str, path: str) -> None:
    found(db, key)
    db.execute(
        "INSERT OR REPLACE INTO bindings (namespace, root, path, session) VALUES (?, ?, ?, ?)",
        (key.namespace, root, path, key.id),
    )


def bound(db: sqlite3.Connection, namespace: str, root: str, path: str) -> str | None:
    row = db.execute(
        "SELECT session FROM bindings WHERE namespace = ? AND root = ? AND path = ?", (namespace, root, path)
    ).fetchone()
    return str(row[0]) if row else None


def move(db: sqlite3.Connection, root: str, old: str, new: str) -> int:
    """Whatever was bound at a new place is replaced: its file was overwritten."""
    inside = "root = :root AND (path = :old OR substr(path, 1, length(:old) + 1) = :old || '/')"
    place = {"root": root, "old": old}
    rows = db.execute(f"SELECT namespace, path, session FROM bindings WHERE {inside}", place).fetchall()
    db.execute(f"DELETE FROM bindings WHERE {inside}", place)
    db.executemany(
        "INSERT OR REPLACE INTO bindings (namespace, root, path, session) VALUES (?, ?, ?, ?)",
        [(namespace, root, new + path[len(old) :], session) for namespace, path, session in rows],
    )
    return len(rows)


def paths(db: sqlite3.Connection, root: str, key: SessionKey) -> list[str]:
    rows = db.execute(f"SELECT path FROM bindings WHERE {_HERE} AND root = ? ORDER BY path", (*_pair(key), root))
    return [path for (path,) in rows]


# ----------------------------------------------------------------------------------------------------- rows


def _pair(key: SessionKey) -> tuple[str, str]:
    return key.namespace, key.id


def _sql_limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _turn(db: sqlite3.Connection, key: SessionKey, id: str) -> Turn | None:
    row = db.execute(f"SELECT {_TURN} FROM turns WHERE {_HERE} AND id = ?", (*_pair(key), id)).fetchone()
    return _turn_of(row) if row else None


def _turn_row(turn: Turn) -> tuple[object, ...]:
    words = (turn.ordinal, turn.state, turn.reason, turn.cell, turn.epoch, turn.where, turn.model)
    texts = (stored.encode_json(turn.usage), stored.encode_json(turn.record))
    return (*_pair(turn.key), turn.id, *words, turn.opened, turn.closed, *texts)


def _turn_of(row: Sequence[Any]) -> Turn:
    namespace, session, id, *middle, usage, record = row
    fields = (*middle, json.loads(usage), json.loads(record))
    return Turn(id, SessionKey(namespace, session), *fields)
