"""The texts of all messages in the form in which they are searched: taken over from the items in batches, forgotten.

An id of a text is its session's number, its seq and its role, so that hits are counted without reading a row, and those
of one session or one namespace are a range.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.search.search import comparable, said
from agent_kernel.sessions.tables import search_index
from agent_kernel.sessions.tables.rows import HERE, pair
from agent_kernel.sessions.tables.search_index import Ids

SEQ_BITS = 24
"""One of them is the role: what is said after the 8,388,607th item of a session is not searched."""
NUMBER_BITS = 22
"""Sessions of one namespace; 17 bits are left for namespaces."""
BATCH = 500
BATCH_CHARS = 256 * 1024
"""Of one transaction of ``fold``, about 50 ms."""
SEGMENT = "segment IN (SELECT 0 UNION ALL SELECT id FROM segments WHERE namespace = :namespace AND session = :session)"
"""Any of the session: with it an item is found by its seq through the index."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)


def fold(db: sqlite3.Connection, limit: int) -> int:
    """Takes over a batch of what is new, or makes a step of what else is to be done; how many items that was, at least
    1. An index that turns out to be broken is made anew by the next call."""
    indexed = search_index.available()
    db.execute("SAVEPOINT folding")
    try:
        if indexed:
            search_index.ready(db)
        taken = _take_over(db, min(limit, BATCH), indexed=indexed)
        if not taken and indexed:
            taken = _catch_up(db, min(limit, BATCH))
        if not taken and indexed:
            search_index.tidy(db)
    except sqlite3.DatabaseError as error:
        if not search_index.broken(error):
            raise
        db.execute("ROLLBACK TO folding")
        if search_index.has(db, search_index.RENEW):
            raise
        search_index.note(db, search_index.RENEW)
        return 1
    return max(1, taken)


def due(db: sqlite3.Connection) -> bool:
    """There is something for ``fold`` to do."""
    questions = ["SELECT 1 FROM sessions WHERE folded < head"]
    if search_index.available():
        questions += ["SELECT 1 FROM search_unindexed", "SELECT 1 FROM search_chores"]
    return any(db.execute(f"{question} LIMIT 1").fetchone() for question in questions)


def left(db: sqlite3.Connection) -> int:
    """Items that are not taken over, and texts that are not in the index where there can be one."""
    items = db.execute("SELECT coalesce(sum(head - folded), 0) FROM sessions WHERE folded < head").fetchone()[0]
    texts = db.execute("SELECT count(*) FROM search_unindexed").fetchone()[0] if search_index.available() else 0
    return int(items) + int(texts)


def forget(db: sqlite3.Connection, key: SessionKey, seqs: Iterable[int]) -> None:
    """The texts of these items, before or after those are removed."""
    at = number(db, key)
    if at is not None:
        for seq in seqs:
            _remove(db, Ids(at << SEQ_BITS | seq << 1, at << SEQ_BITS | seq << 1 | 1))


def forget_all(db: sqlite3.Connection, key: SessionKey) -> None:
    """The texts of a session, which then begins anew."""
    at = number(db, key)
    if at is not None:
        _remove(db, ids(at))
        db.execute("DELETE FROM search_places WHERE number = ?", (at,))
    db.execute("UPDATE sessions SET folded = 0 WHERE namespace = ? AND id = ?", pair(key))


def _take_over(db: sqlite3.Connection, limit: int, *, indexed: bool) -> int:
    """Counted in seqs, also of items that are not searched."""
    taken, chars = 0, 0
    while taken < limit and chars < BATCH_CHARS:
        row = db.execute("SELECT namespace, id, folded, head FROM sessions WHERE folded < head LIMIT 1").fetchone()
        if row is None:
            break
        key, folded, head = SessionKey(*row[:2]), row[2], row[3]
        if not folded:
            forget_all(db, key)
        texts: list[tuple[int, float, str]] = []
        until = min(head, folded + limit - taken)
        for seq, role, time, text in unfolded(db, key, folded, until):
            chars += len(text)
            if text and not seq >> SEQ_BITS - 1:
                texts.append((id_of(0, seq, role), time, text))
            if chars >= BATCH_CHARS:
                until = seq
                break
        if texts:
            _keep(db, number(db, key) or _new_number(db, key), texts, indexed=indexed)
        db.execute("UPDATE sessions SET folded = ? WHERE namespace = ? AND id = ?", (until, *pair(key)))
        taken += until - folded
    return taken


def _keep(db: sqlite3.Connection, number: int, texts: list[tuple[int, float, str]], *, indexed: bool) -> None:
    rows = [(number << SEQ_BITS | id, time, text) for id, time, text in texts]
    db.executemany("INSERT INTO search_texts (id, time, text) VALUES (?, ?, ?)", rows)
    if indexed:
        search_index.add(db, [(id, text) for id, _, text in rows])
    else:
        db.executemany("INSERT INTO search_unindexed (id) VALUES (?)", [(id,) for id, _, _ in rows])


def _catch_up(db: sqlite3.Connection, limit: int) -> int:
    """Puts texts into the index that are not in it."""
    rows = db.execute(
        "SELECT t.id, t.text FROM search_unindexed AS u JOIN search_texts AS t ON t.id = u.id LIMIT ?", (limit,)
    ).fetchall()
    search_index.add(db, rows)
    db.executemany("DELETE FROM search_unindexed WHERE id = ?", [(id,) for id, _ in rows])
    return len(rows)


def _remove(db: sqlite3.Connection, ids: Ids) -> None:
    if db.execute("SELECT 1 FROM search_texts WHERE id BETWEEN ? AND ? LIMIT 1", ids).fetchone() is None:
        return
    search_index.remove(db, ids)
    db.execute("DELETE FROM search_texts WHERE id BETWEEN ? AND ?", ids)
    db.execute("DELETE FROM search_unindexed WHERE id BETWEEN ? AND ?", ids)


def unfolded(db: sqlite3.Connection, key: SessionKey, after: int, until: int) -> Iterator[tuple[int, str, float, str]]:
    """(seq, role, time, text to compare) of what people and models said, in order, on all branches."""
    rows = db.execute(
        "SELECT seq, role, time, body FROM items"
        f" WHERE namespace = :namespace AND session = :session AND {SEGMENT} AND seq > :after AND seq <= :until"
        " AND role IN ('user', 'assistant') ORDER BY seq",
        {"namespace": key.namespace, "session": key.id, "after": after, "until": until},
    )
    for seq, role, time, body in rows:
        yield seq, role, time, comparable(said_in(body))


def said_in(body: str) -> str:
    """Nothing of what can not be read; ``verify`` tells of that."""
    try:
        return said(serialization.decode(body))
    except _UNREADABLE:
        return ""


# ------------------------------------------------------------------------------------------------------ numbers


def ids(number: int) -> Ids:
    """Of a session."""
    return Ids(number << SEQ_BITS, (number + 1 << SEQ_BITS) - 1)


def number_of(id: int) -> int:
    return id >> SEQ_BITS


def seq_of(id: int) -> int:
    return (id & ((1 << SEQ_BITS) - 1)) >> 1


def id_of(number: int, seq: int, role: str) -> int:
    return number << SEQ_BITS | seq << 1 | (role == "assistant")


def role_of(id: int) -> str:
    return "assistant" if id & 1 else "user"


def number(db: sqlite3.Connection, key: SessionKey) -> int | None:
    row = db.execute(f"SELECT number FROM search_places WHERE {HERE}", pair(key)).fetchone()
    return int(row[0]) if row else None


def numbers(db: sqlite3.Connection, namespace: str) -> tuple[int, int] | None:
    """The lowest and the highest of a namespace."""
    row = db.execute("SELECT min(number), max(number) FROM search_places WHERE namespace = ?", (namespace,)).fetchone()
    return None if row[0] is None else row


def _new_number(db: sqlite3.Connection, key: SessionKey) -> int:
    """Behind those of its namespace. Raises StoreError when there is none left."""
    of_namespace = numbers(db, key.namespace)
    if of_namespace is None:
        (last,) = db.execute("SELECT coalesce(max(number), 0) FROM search_places").fetchone()
        new = (last >> NUMBER_BITS) + 1 << NUMBER_BITS
        full = new >> 63 - SEQ_BITS
    else:
        new = of_namespace[1] + 1
        full = new >> NUMBER_BITS != of_namespace[1] >> NUMBER_BITS
    if full:
        raise StoreError("There are too many sessions for search.", hint="Keep some of them in another file.")
    db.execute("INSERT INTO search_places (number, namespace, session) VALUES (?, ?, ?)", (new, *pair(key)))
    return int(new)
