"""Reads, writes and replaces whole sessions, and replaces the outputs of their tools."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import groupby

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, Message, Text
from agent_kernel.core.session import MAIN, Item, Session, SessionKey, Summary
from agent_kernel.core.session_tree import BranchTree, SessionSnapshot, TreeSegment
from agent_kernel.sessions import serialization
from agent_kernel.sessions.tables import files, items, segments, sessions, summaries, turns
from agent_kernel.sessions.tables.rows import (
    HERE,
    SUMMARY_COLUMNS,
    insert_row,
    item_from_row,
    pair,
    summary_from_row,
    update_session,
)


def read_whole(db: sqlite3.Connection, key: SessionKey) -> SessionSnapshot | None:
    """Return the session with everything that belongs to it, media without data. None if it does not exist."""
    session = sessions.select_session(db, key, counts=True)
    if session is None:
        return None
    messages, opened = items.select_all_items(db, key), turns.select_all_turns(db, key)
    branches = tuple(segments.select_branches(db, key))
    kept_files = tuple(files.select_files(db, key))
    return SessionSnapshot(
        session, tuple(opened), tuple(messages), branches, _select_summaries(db, key), _read_tree(db, key), kept_files
    )


def write_whole(db: sqlite3.Connection, whole: SessionSnapshot, blobs: Mapping[str, bytes], now: float) -> Session:
    """Insert a whole session. Its ``accessed`` is set to now, so that an imported session does not expire at once.
    Raises Conflict if it exists, and InvalidRequest if one of its turns is open."""
    key = whole.session.key
    if running := next((turn.id for turn in whole.turns if turn.state == "open"), ""):
        # An open turn in the copy would have no owner, so nobody could close it and the session could never be used.
        raise InvalidRequest(
            f"A session with an open turn ({running!r}) cannot be stored. Close the turn in the copy first.",
            details={"turn": running},
        )
    if sessions.select_session(db, key):
        raise Conflict(f"A session {key.id!r} exists already.", details={"session": key.id})
    sessions.create(db, key, whole.session.title, now)
    _write_tree(db, whole)
    _write_turns(db, whole)
    _write_items(db, whole, blobs)
    files.store_files(db, key, [(file, _require_bytes(file, blobs)) for file in whole.files], now)
    _write_summaries(db, whole)
    _write_session(db, whole.session, now)
    return sessions.require_session(db, key, counts=True)


def replace_whole(db: sqlite3.Connection, whole: SessionSnapshot, blobs: Mapping[str, bytes], now: float) -> Session:
    """Insert a whole session, and delete the session with the same id first, if there is one."""
    old = sessions.select_session(db, whole.session.key)
    if old is not None:
        sessions.remove_session(db, whole.session.key)
        # Readers that know the old revision must notice the change.
        revision = max(whole.session.revision, old.revision + 1)
        whole = replace(whole, session=replace(whole.session, revision=revision))
    return write_whole(db, whole, blobs, now)


def clear_outputs(db: sqlite3.Connection, key: SessionKey, ids: Collection[str], text: str, now: float) -> int:
    """Replace the tool results of the turns ``ids`` with ``text``, delete the stored openings that include them, and
    return how many results were replaced."""
    sessions.require_session(db, key)
    sessions.check_no_open_turn(db, key)
    cleared = [
        item for turn in sorted(ids) for item in _select_results(db, key, turn) if item.message.parts != (Text(text),)
    ]
    for item in cleared:
        body = serialization.encode(replace(item.message, parts=(Text(text),)))
        db.execute(f"UPDATE items SET body = ? WHERE {HERE} AND seq = ?", (body, *pair(key), item.seq))
        items.remove_media(db, key, item.seq)
    if cleared:
        first = min(item.seq for item in cleared)
        db.execute(f"DELETE FROM openings WHERE {HERE} AND seq >= ?", (*pair(key), first))
        for turn in {item.turn for item in cleared}:
            _record_clearing(db, key, turn, now)
        sessions.mark_changed(db, key, now)
    return len(cleared)


# ------------------------------------------------------------------------------------------------------ reading


def _read_tree(db: sqlite3.Connection, key: SessionKey) -> BranchTree:
    rows = db.execute(f"SELECT id, parent, since FROM segments WHERE {HERE} ORDER BY id", pair(key)).fetchall()
    ends = db.execute(f"SELECT name, segment FROM branches WHERE {HERE} ORDER BY created, segment", pair(key))
    placed = db.execute(f"SELECT id, segment FROM turns WHERE {HERE} AND segment <> 0 ORDER BY ordinal", pair(key))
    return BranchTree(tuple(TreeSegment(*row) for row in rows), dict(ends.fetchall()), dict(placed.fetchall()))


def _select_summaries(db: sqlite3.Connection, key: SessionKey) -> tuple[Summary, ...]:
    rows = db.execute(f"SELECT {SUMMARY_COLUMNS} FROM summaries WHERE {HERE} ORDER BY id", pair(key))
    return tuple(summary_from_row(key, row) for row in rows)


def _select_results(db: sqlite3.Connection, key: SessionKey, turn: str) -> list[Item]:
    rows = db.execute(
        f"SELECT seq, turn, body, time FROM items WHERE {HERE} AND turn = ? AND role = 'tool'", (*pair(key), turn)
    )
    return [item_from_row(row) for row in rows.fetchall()]


# ------------------------------------------------------------------------------------------------------ writing


def _write_tree(db: sqlite3.Connection, whole: SessionSnapshot) -> None:
    key = whole.session.key
    for segment in whole.tree.segments:
        insert_row(db, "segments", key, **asdict(segment))
    if whole.branches:
        db.execute(f"DELETE FROM branches WHERE {HERE}", pair(key))
    elif whole.session.branch != MAIN:
        db.execute(f"UPDATE branches SET name = ? WHERE {HERE}", (whole.session.branch, *pair(key)))
    for branch in whole.branches:
        end = whole.tree.ends[branch.name]
        insert_row(db, "branches", key, name=branch.name, segment=end, parent=branch.parent, created=branch.created)


def _write_turns(db: sqlite3.Connection, whole: SessionSnapshot) -> None:
    """Insert the turns. They have no owner, because all of them are closed."""
    for turn in whole.turns:
        segment = whole.tree.turns.get(turn.id, 0)
        turns.insert_turn_row(db, replace(turn, key=whole.session.key), segment, heartbeat=0.0)


def _write_summaries(db: sqlite3.Connection, whole: SessionSnapshot) -> None:
    turn_of = {item.seq: item.turn for item in whole.items}
    for summary in whole.summaries:
        segment = whole.tree.turns.get(turn_of[summary.last], 0)
        summaries.insert_summary_row(db, replace(summary, key=whole.session.key), segment)


def _write_items(db: sqlite3.Connection, whole: SessionSnapshot, blobs: Mapping[str, bytes]) -> None:
    by_id = {turn.id: turn for turn in whole.turns}
    for run in _group_stored_together(whole.items):
        turn = by_id[run[0].turn]
        segment = whole.tree.turns.get(turn.id, 0)
        place = items.AppendPoint(whole.session.key, turn.id, segment, turn.cell, turn.epoch, run[0].seq - 1)
        items.insert_items(db, place, [_fill_media(item.message, blobs) for item in run], run[0].time)


def _group_stored_together(items: tuple[Item, ...]) -> Iterator[list[Item]]:
    """Yield groups of items that were stored by one append: they have the same turn and time, and consecutive sequence
    numbers."""
    numbered = enumerate(items)
    # seq minus index is constant within a run of consecutive seqs.
    for _, group in groupby(numbered, key=lambda pair: (pair[1].turn, pair[1].time, pair[1].seq - pair[0])):
        yield [item for _, item in group]


def _fill_media(message: Message, blobs: Mapping[str, bytes]) -> Message:
    def fill_media(medium: Media) -> Media:
        return replace(medium, data=blobs.get(medium.hash))

    parts = tuple(fill_media(part) if isinstance(part, Media) else part for part in message.parts)
    return replace(message, parts=parts)


def _require_bytes(file: File, blobs: Mapping[str, bytes]) -> bytes | None:
    if file.error:
        return None
    if file.hash not in blobs:
        raise InvalidRequest(f"The bytes of file {file.id} are missing.")
    return blobs[file.hash]


def _write_session(db: sqlite3.Connection, session: Session, now: float) -> None:
    plain = {name: getattr(session, name) for name in ("created", "updated", "head", "revision", "turns")}
    described = {
        name: serialization.encode_value(getattr(session, name)) for name in ("metadata", "context", "imported")
    }
    tags = json.dumps(session.tags, ensure_ascii=False)
    update_session(db, session.key, **plain, **described, tags=tags, accessed=now)
    segments.make_current(db, session.key, session.branch)


def _record_clearing(db: sqlite3.Connection, key: SessionKey, turn: str, now: float) -> None:
    stored = turns.select_turn(db, key, turn)
    assert stored is not None, "its items were just read"
    record = serialization.encode_value({**stored.record, "outputs_cleared": now})
    db.execute(f"UPDATE turns SET record = ? WHERE {HERE} AND id = ?", (record, *pair(key), turn))
