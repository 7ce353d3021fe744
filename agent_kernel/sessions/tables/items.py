"""SQL for items: inserts them at the end of a segment, reads them along the path of a branch (its list of segments, see
``segments.py``), and removes them from the end of a segment."""

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
from agent_kernel.sessions.tables.rows import HERE, ITEM_COLUMNS, has_row, insert_rows, item_from_row, pair
from agent_kernel.sessions.tables.segments import SegmentRange

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppendPoint:
    """The place where new items are inserted, and the values that they copy from their turn. ``head`` is the last
    sequence number of the session."""

    key: SessionKey
    turn: str
    segment: int
    cell: str
    epoch: str
    head: int
    turns: int | None = None
    """Number of turns of the session after the insert, if these items begin a new turn."""


def insert_items(db: sqlite3.Connection, place: AppendPoint, messages: Sequence[Message], now: float) -> list[Item]:
    """Insert messages as items after the item with the sequence number ``place.head``, store their media, update the
    head of the session, and return the items."""
    return insert_batches(db, [(place, messages)], now) if messages else []


def insert_batches(
    db: sqlite3.Connection, batches: Sequence[tuple[AppendPoint, Sequence[Message]]], now: float
) -> list[Item]:
    """Insert items as ``insert_items`` does, for several turns of one session. The batches are in the order of their
    sequence numbers, and none is empty."""
    (first, _), (last, newest) = batches[0], batches[-1]
    session_key = pair(first.key)
    with_media = [message for _, messages in batches for message in messages if message.media]
    if with_media:
        carried = serialization.collect_media(with_media, lambda digest: has_medium(db, first.key, digest))
        blobs.store_media(db, first.key.namespace, carried.values())
    numbered = [
        (place, seq, message, serialization.encode(message))
        for place, messages in batches
        for seq, message in enumerate(messages, start=place.head + 1)
    ]
    insert_rows(
        db,
        "items",
        [_row(place, seq, message, body, now) for place, seq, message, body in numbered],
    )
    if with_media:
        db.executemany(
            "INSERT INTO media (namespace, session, hash, seq) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(*session_key, medium.hash, seq) for _, seq, message, _ in numbered for medium in message.media],
        )
    db.execute(
        "UPDATE sessions SET head = ?, turns = coalesce(?, turns), revision = revision + ?, updated = ?, accessed = ?"
        " WHERE namespace = ? AND id = ?",
        (last.head + len(newest), last.turns, len(batches), now, now, *session_key),
    )
    return [
        Item(seq, place.turn, serialization.as_stored(message, body), now) for place, seq, message, body in numbered
    ]


def _row(place: AppendPoint, seq: int, message: Message, body: str, now: float) -> tuple[Any, ...]:
    key, kind = pair(place.key), _kind(message)
    origin = (place.cell, place.epoch, now, place.segment)
    return (*key, seq, place.turn, message.role, kind, message.call_id, body, *origin)


def select_latest(
    db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], limit: int | None, *, failed: bool = True
) -> list[Item]:
    """Return at most ``limit`` of the newest items of a branch, given as its ``path``, in order. Results at the
    beginning whose calls are not included are left out. ``failed=False`` leaves out the items of failed turns.

    A row that cannot be decoded is left out together with the calls and results of its round, and does not count
    towards the limit.
    """
    newest, broken = _read_newest(db, key, path, limit, failed=failed)
    complete = call_pairs.drop_leading_results(newest)
    return call_pairs.drop_incomplete_rounds(complete) if broken else complete


def select_newest(db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], count: int) -> list[Item]:
    """Return the newest ``count`` items of a branch, given as its ``path``, in order. They may begin with results whose
    calls are not included."""
    return _read_newest(db, key, path, count, failed=True)[0]


def select_last_unit(db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange]) -> list[Item]:
    """Return the smallest group of items that can be removed from the end of a branch, given as its ``path``: the
    newest item that is not a tool result, and all items after it. Empty if there is none."""
    unit: list[Item] = []
    with closing(_iterate_backwards(db, key, path, failed=True)) as rows:
        for row in rows:
            if (item := _decode_row(key, row)) is not None:
                unit.append(item)
                if item.message.role != "tool":
                    return unit[::-1]
    return []


def select_all_items(db: sqlite3.Connection, key: SessionKey) -> list[Item]:
    return _select_items(db, key, f"SELECT {ITEM_COLUMNS} FROM items WHERE {HERE} ORDER BY seq", pair(key))


def select_turn_items(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[Item]:
    """Return the items of a turn. They all come after the item at which the turn was opened, so the query reads only a
    range of the index."""
    query = (
        f"SELECT {ITEM_COLUMNS} FROM items WHERE {HERE} AND seq > (SELECT since FROM turns WHERE {HERE} AND id = ?)"
        " AND turn = ? ORDER BY seq"
    )
    return _select_items(db, key, query, (*pair(key), *pair(key), turn, turn))


def _select_items(db: sqlite3.Connection, key: SessionKey, query: str, values: Sequence[str]) -> list[Item]:
    """Return the items that the query selects and that can be decoded."""
    rows = db.execute(query, values).fetchall()
    return [item for item in (_decode_row(key, row) for row in rows) if item is not None]


def _read_newest(
    db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], limit: int | None, *, failed: bool
) -> tuple[list[Item], bool]:
    """Return the newest items in order, and whether any row among them could not be decoded."""
    newest: list[Item] = []
    broken = False
    if limit == 0:
        return newest, broken
    with closing(_iterate_backwards(db, key, path, failed=failed)) as rows:
        for row in rows:
            item = _decode_row(key, row)
            if item is None:
                broken = True
                continue
            newest.append(item)
            if len(newest) == limit:
                break
    return newest[::-1], broken


def _iterate_backwards(
    db: sqlite3.Connection, key: SessionKey, path: Sequence[SegmentRange], *, failed: bool
) -> Generator[tuple[Any, ...], None, None]:
    """Yield the rows of the items of a branch, given as its ``path``, newest first, and read them only as they are
    requested. Each range of the path needs one index look-up."""
    of_failed = "SELECT id FROM turns WHERE namespace = :namespace AND session = :session AND state = 'failed'"
    # A subquery is used instead of a join, because the index of items then still returns the rows in order, without
    # sorting.
    condition = "" if failed else f" AND turn NOT IN ({of_failed})"
    for piece in path:
        place = {"namespace": key.namespace, "session": key.id, "segment": piece.segment, "until": piece.until}
        cursor = db.execute(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE namespace = :namespace AND session = :session"
            f" AND segment = :segment AND seq <= :until{condition} ORDER BY seq DESC",
            place,
        )
        with closing(cursor):
            yield from cursor


def _decode_row(key: SessionKey, row: Sequence[Any]) -> Item | None:
    try:
        return item_from_row(row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning(
            "item %s of session %s cannot be decoded (%s) and is left out", row[0], key.id, type(error).__name__
        )
        return None


def remove_after(db: sqlite3.Connection, key: SessionKey, segment: int, after: int) -> None:
    """Delete all items of a segment after item ``after``, and the media to which no other item of the namespace
    refers."""
    range_start = (*pair(key), segment, after)
    behind = f"SELECT seq FROM items WHERE {HERE} AND segment = ? AND seq > ?"
    of_items = (*pair(key), *range_start)
    # The rows that refer to the items are deleted first, while the items can still be selected.
    hashes = [row[0] for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq IN ({behind})", of_items)]
    db.execute(f"DELETE FROM media WHERE {HERE} AND seq IN ({behind})", of_items)
    db.execute(f"DELETE FROM summaries WHERE {HERE} AND last IN ({behind})", of_items)
    db.execute(f"DELETE FROM openings WHERE {HERE} AND seq IN ({behind})", of_items)
    search_texts.delete_texts(db, key, [seq for (seq,) in db.execute(behind, range_start)])
    db.execute(f"DELETE FROM items WHERE {HERE} AND segment = ? AND seq > ?", range_start)
    # A turn is deleted if it was opened at or after item ``after``, because all its items come later than that.
    # ``since`` is the last seq of the session at the time when the turn was opened.
    db.execute(f"DELETE FROM turns WHERE {HERE} AND segment = ? AND since >= ?", range_start)
    blobs.remove_unnamed(db, key.namespace, hashes)


def remove_media(db: sqlite3.Connection, key: SessionKey, seq: int) -> None:
    """Remove the media of an item, and the blobs that no other item of the namespace refers to."""
    hashes = [row[0] for row in db.execute(f"SELECT hash FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))]
    db.execute(f"DELETE FROM media WHERE {HERE} AND seq = ?", (*pair(key), seq))
    blobs.remove_unnamed(db, key.namespace, hashes)


def read_blob(db: sqlite3.Connection, key: SessionKey, digest: str) -> bytes | None:
    return blobs.read_medium(db, key.namespace, digest) if has_medium(db, key, digest) else None


def has_medium(db: sqlite3.Connection, key: SessionKey, digest: str) -> bool:
    """Return whether an item of the session refers to media with this hash."""
    return has_row(db, f"SELECT 1 FROM media WHERE {HERE} AND hash = ? LIMIT 1", (*pair(key), digest))


def _kind(message: Message) -> str:
    return "result" if message.role == "tool" else "calls" if message.calls else "message"
