"""Rows of sessions, turns and items as values, and what all statements say about where a row is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent_kernel.core.session import Item, Session, SessionKey, Turn
from agent_kernel.sessions import serialization

SESSION = (
    "namespace, id, title, created, updated, head, revision, turns, branch, accessed, tags, metadata, context, imported"
)
TURN = (
    "namespace, session, id, ordinal, state, reason, cell, epoch, location, model, opened, closed, usage, record, since"
)
ITEM = "seq, turn, body, time"
HERE = "namespace = ? AND session = ?"


def pair(key: SessionKey) -> tuple[str, str]:
    return key.namespace, key.id


def changed_rows(db: sqlite3.Connection) -> int:
    """The number of rows that the last INSERT, UPDATE or DELETE changed.

    ``Cursor.rowcount`` cannot say it: Python recognizes these words by the rules of the locale, and where the language
    is Turkish or Azerbaijani (which have an I without a dot) it takes INSERT for a query and reports -1.
    """
    (count,) = db.execute("SELECT changes()").fetchone()
    return int(count)


def sql_limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def session_of(row: Sequence[Any]) -> Session:
    *plain, tags, metadata, context, imported = row[2:]
    session = Session(SessionKey(row[0], row[1]), *plain)
    return replace(
        session,
        tags=tuple(json.loads(tags)),
        metadata=json.loads(metadata),
        context=json.loads(context),
        imported=json.loads(imported),
    )


def turn_row(turn: Turn) -> tuple[object, ...]:
    words = (turn.ordinal, turn.state, turn.reason, turn.cell, turn.epoch, turn.where, turn.model)
    texts = [serialization.encode_json(said) if said else "{}" for said in (turn.usage, turn.record)]
    return (*pair(turn.key), turn.id, *words, turn.opened, turn.closed, *texts, turn.since)


def turn_of(row: Sequence[Any]) -> Turn:
    *middle, usage, record, since = row[3:]
    turn = Turn(row[2], SessionKey(row[0], row[1]), *middle)
    return replace(turn, usage=json.loads(usage), record=json.loads(record), since=since)


def item_of(row: Sequence[Any]) -> Item:
    seq, turn, body, time = row
    return Item(seq, turn, serialization.decode(body), time)
