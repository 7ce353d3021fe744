"""Items: stored at the end of a segment, read along a way through the segments, removed from its end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.messages import Media, Message
from agent_kernel.sessions import pairs, stored
from agent_kernel.sessions.model import Item, SessionKey
from agent_kernel.sessions.tables.rows import HERE, ITEM, item_of, pair, sql_limit
from agent_kernel.sessions.tables.segments import Piece


@dataclass(frozen=True, slots=True)
class Place:
    """Where new items go, and what they repeat of their turn."""

    key: SessionKey
    turn: str
    segment: int
    cell: str
    epoch: str
    head: int


def insert(db: sqlite3.Connection, place: Place, messages: Sequence[Message], now: float) -> list[Item]:
    """Sets the head of the session; media data go to the blobs."""
    if not messages:
        return []
    here = pair(place.key)
    _keep(db, place.key, stored.media(messages, lambda digest: names(db, place.key, digest)))
    numbered = [(seq, said, stored.encode(said)) for seq, said in enumerate(messages, start=place.head + 1)]
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
        "UPDATE sessions SET head = ?, revision = revision + 1, updated = ?, accessed = ?"
        " WHERE namespace = ? AND id = ?",
        (place.head + len(messages), now, now, *here),
    )
    return [Item(seq, place.turn, stored.decode(body), now) for seq, _, body in numbered]


def latest(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], limit: int | None, *, failed: bool = True
) -> list[Item]:
    found: list[Item] = []
    for row in _backwards(db, key, way, limit, failed=failed):
        found.append(item_of(row))
    return pairs.whole(found[::-1])


def everything(db: sqlite3.Connection, key: SessionKey) -> list[Item]:
    rows = db.execute(f"SELECT {ITEM} FROM items WHERE {HERE} ORDER BY seq", pair(key))
    return [item_of(row) for row in rows]


def _backwards(
    db: sqlite3.Connection, key: SessionKey, way: Sequence[Piece], limit: int | None, *, failed: bool
) -> Iterator[tuple[Any, ...]]:
    """From the newest; each piece of the way is one look into the index."""
    of_failed = "SELECT id FROM turns WHERE namespace = :namespace AND session = :session AND state = 'failed'"
    left = sql_limit(limit)
    for piece in way:
        rows = db.execute(
            f"SELECT {ITEM} FROM items WHERE namespace = :namespace AND session = :session AND segment = :segment"
            f" AND seq <= :until{'' if failed else f' AND turn NOT IN ({of_failed})'} ORDER BY seq DESC LIMIT :limit",
            {
                "namespace": key.namespace,
                "session": key.id,
                "segment": piece.segment,
                "until": piece.until,
                "limit": left,
            },
        ).fetchall()
        yield from rows
        if left >= 0:
            left -= len(rows)
            if not left:
                return


def remove(db: sqlite3.Connection, key: SessionKey, seqs: Sequence[int]) -> None:
    """Media that no other item of the namespace names go too, and turns that have no item left."""
    of_items = [(*pair(key), seq) for seq in seqs]
    turns = {row[0] for seq in of_items for row in db.execute(f"SELECT turn FROM items WHERE {HERE} AND seq = ?", seq)}
    hashes = [row[0] for seq in of_items for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq = ?", seq)]
    db.executemany(f"DELETE FROM items WHERE {HERE} AND seq = ?", of_items)
    db.executemany(f"DELETE FROM media WHERE {HERE} AND seq = ?", of_items)
    db.executemany(f"DELETE FROM summaries WHERE {HERE} AND last = ?", of_items)
    db.executemany(f"DELETE FROM openings WHERE {HERE} AND seq = ?", of_items)
    db.executemany(
        f"DELETE FROM turns WHERE {HERE} AND id = ? AND id NOT IN (SELECT turn FROM items WHERE {HERE})",
        [(*pair(key), turn, *pair(key)) for turn in turns],
    )
    _forget(db, key.namespace, hashes)


def forget_media(db: sqlite3.Connection, key: SessionKey, seq: int) -> None:
    """The item names none any more; those that no other item of the namespace names go."""
    hashes = [row[0] for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))]
    db.execute(f"DELETE FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))
    _forget(db, key.namespace, hashes)


def _forget(db: sqlite3.Connection, namespace: str, hashes: Sequence[str]) -> None:
    db.executemany(
        "DELETE FROM blobs WHERE namespace = :namespace AND hash = :hash"
        " AND NOT EXISTS (SELECT 1 FROM media WHERE namespace = :namespace AND hash = :hash)",
        [{"namespace": namespace, "hash": digest} for digest in hashes],
    )


def blob(db: sqlite3.Connection, key: SessionKey, digest: str) -> bytes | None:
    if not names(db, key, digest):
        return None
    row = db.execute("SELECT data FROM blobs WHERE namespace = ? AND hash = ?", (key.namespace, digest)).fetchone()
    return bytes(row[0]) if row else None


def names(db: sqlite3.Connection, key: SessionKey, digest: str) -> bool:
    """An item of the session names this medium."""
    row = db.execute(f"SELECT 1 FROM media WHERE {HERE} AND hash = ? LIMIT 1", (*pair(key), digest)).fetchone()
    return row is not None


def _keep(db: sqlite3.Connection, key: SessionKey, media: Mapping[str, Media]) -> None:
    rows = [(key.namespace, medium.hash, medium.mime, medium.size, medium.data) for medium in media.values()]
    if rows:
        db.executemany(
            "INSERT INTO blobs (namespace, hash, mime, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows
        )


def _kind(message: Message) -> str:
    return "result" if message.role == "tool" else "calls" if message.calls else "message"
