"""Items: stored at the end of a segment, read along a way through the segments, removed from its end."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item, SessionKey
from agent_kernel.sessions import call_pairs, serialization
from agent_kernel.sessions.tables import blobs, search_texts
from agent_kernel.sessions.tables.rows import HERE, ITEM, item_of, pair
from agent_kernel.sessions.tables.segments import Piece

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where new items go, and what they repeat of their turn."""

    key: SessionKey
    turn: str
    segment: int
    cell: str
    epoch: str
    head: int
    turns: int | None = None
    """How many turns the session has, where these items are the beginning of a new one."""


def insert(db: sqlite3.Connection, place: Place, messages: Sequence[Message], now: float) -> list[Item]:
    """Sets the head of the session; media data go to the blobs."""
    if not messages:
        return []
    here = pair(place.key)
    carried = serialization.media(messages, lambda digest: names(db, place.key, digest))
    blobs.keep(db, place.key.namespace, carried.values())
    numbered = [(seq, said, serialization.encode(said)) for seq, said in enumerate(messages, start=place.head + 1)]
    db.executemany(
        "INSERT INTO items (namespace, session, seq, turn, role, kind, call_id, body, cell, epoch, time, segment)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *here,
                seq,
                place.turn,
                said.role,
                _kind(said),
                said.call_id,
                body,
                place.cell,
                place.epoch,
                now,
                place.segment,
            )
            for seq, said, body in numbered
        ],
    )
    named = [(*here, medium.hash, seq) for seq, said, _ in numbered for medium in said.media]
    if named:
        db.executemany(
            "INSERT INTO media (namespace, session, hash, seq) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", named
        )
    db.execute(
        "UPDATE sessions SET head = ?, turns = coalesce(?, turns), revision = revision + 1, updated = ?, accessed = ?"
        " WHERE namespace = ? AND id = ?",
        (place.head + len(messages), place.turns, now, now, *here),
    )
    return [Item(seq, place.turn, serialization.kept(said, body), now) for seq, said, body in numbered]


def latest(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], limit: int | None, *, failed: bool = True
) -> list[Item]:
    """A row that does not decode is left out, with the rest of its round, and does not count for the limit."""
    found, broken = _newest(db, key, way, limit, failed=failed)
    said = call_pairs.whole(found)
    return call_pairs.sound(said) if broken else said


def newest(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], count: int) -> list[Item]:
    """In order, wherever that begins."""
    return _newest(db, key, way, count, failed=True)[0]


def last_unit(db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece]) -> list[Item]:
    """The newest item that stands alone, or the newest calls with their results; empty if there is neither."""
    found: list[Item] = []
    with closing(_backwards(db, key, way, failed=True)) as rows:
        for row in rows:
            if (item := _decoded(key, row)) is not None:
                found.append(item)
                if item.message.role != "tool":
                    return found[::-1]
    return []


def everything(db: sqlite3.Connection, key: SessionKey) -> list[Item]:
    rows = db.execute(f"SELECT {ITEM} FROM items WHERE {HERE} ORDER BY seq", pair(key)).fetchall()
    return [item for item in (_decoded(key, row) for row in rows) if item is not None]


def of_turn(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[Item]:
    """From where the turn was opened on: its items are all behind that."""
    rows = db.execute(
        f"SELECT {ITEM} FROM items WHERE {HERE} AND seq > (SELECT since FROM turns WHERE {HERE} AND id = ?)"
        " AND turn = ? ORDER BY seq",
        (*pair(key), *pair(key), turn, turn),
    ).fetchall()
    return [item for item in (_decoded(key, row) for row in rows) if item is not None]


def _newest(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], limit: int | None, *, failed: bool
) -> tuple[list[Item], bool]:
    """(the newest in order, whether a row among them does not decode)"""
    found: list[Item] = []
    broken = False
    if limit == 0:
        return found, broken
    with closing(_backwards(db, key, way, failed=failed)) as rows:
        for row in rows:
            item = _decoded(key, row)
            if item is None:
                broken = True
                continue
            found.append(item)
            if len(found) == limit:
                break
    return found[::-1], broken


def _backwards(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], *, failed: bool
) -> Generator[tuple[Any, ...], None, None]:
    """From the newest, as they are asked for; each piece of the way is one look into the index."""
    of_failed = "SELECT id FROM turns WHERE namespace = :namespace AND session = :session AND state = 'failed'"
    kept = "" if failed else f" AND turn NOT IN ({of_failed})"
    for piece in way:
        place = {"namespace": key.namespace, "session": key.id, "segment": piece.segment, "until": piece.until}
        cursor = db.execute(
            f"SELECT {ITEM} FROM items WHERE namespace = :namespace AND session = :session AND segment = :segment"
            f" AND seq <= :until{kept} ORDER BY seq DESC",
            place,
        )
        with closing(cursor):
            yield from cursor


def _decoded(key: SessionKey, row: Sequence[Any]) -> Item | None:
    try:
        return item_of(row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("item %s of session %s does not decode (%s); it is left out", row[0], key.id, type(error).__name__)
        return None


def remove(db: sqlite3.Connection, key: SessionKey, segment: int, after: int) -> None:
    """What a segment holds behind item ``after``; media that no other item of the namespace names go too."""
    here = (*pair(key), segment, after)
    behind = f"SELECT seq FROM items WHERE {HERE} AND segment = ? AND seq > ?"
    of_items = (*pair(key), *here)
    hashes = [row[0] for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq IN ({behind})", of_items)]
    db.execute(f"DELETE FROM media WHERE {HERE} AND seq IN ({behind})", of_items)
    db.execute(f"DELETE FROM summaries WHERE {HERE} AND last IN ({behind})", of_items)
    db.execute(f"DELETE FROM openings WHERE {HERE} AND seq IN ({behind})", of_items)
    search_texts.forget(db, key, [seq for (seq,) in db.execute(behind, here)])
    db.execute(f"DELETE FROM items WHERE {HERE} AND segment = ? AND seq > ?", here)
    db.execute(f"DELETE FROM turns WHERE {HERE} AND segment = ? AND since >= ?", here)
    blobs.forget(db, key.namespace, hashes)


def forget_media(db: sqlite3.Connection, key: SessionKey, seq: int) -> None:
    """The item names none any more; those that no other item of the namespace names go."""
    hashes = [row[0] for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))]
    db.execute(f"DELETE FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))
    blobs.forget(db, key.namespace, hashes)


def blob(db: sqlite3.Connection, key: SessionKey, digest: str) -> bytes | None:
    return blobs.read(db, key.namespace, digest) if names(db, key, digest) else None


def names(db: sqlite3.Connection, key: SessionKey, digest: str) -> bool:
    """An item of the session names this medium."""
    row = db.execute(f"SELECT 1 FROM media WHERE {HERE} AND hash = ? LIMIT 1", (*pair(key), digest)).fetchone()
    return row is not None


def _kind(message: Message) -> str:
    return "result" if message.role == "tool" else "calls" if message.calls else "message"
