"""Maintains the table of the case-folded texts of all messages, in which search looks. The texts are copied ("folded")
from the items in batches.

The id of a text consists of the number of its session, the sequence number of its item, and the role of the message. So
matches can be counted without reading rows, and the texts of a session or a namespace have a contiguous range of ids.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from agent_kernel.core.errors import StoreError
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import serialization
from agent_kernel.sessions.search.text_matching import fold_text, message_text
from agent_kernel.sessions.tables import search_index
from agent_kernel.sessions.tables.rows import HERE, pair
from agent_kernel.sessions.tables.search_index import IdRange

SEQ_BITS = 24
"""Number of bits of a text id for the sequence number of the item and the role of the message (one bit). Messages after
item 8,388,607 of a session are not searched."""
NUMBER_BITS = 22
"""Number of bits of a text id for the sessions of one namespace; 17 bits remain for namespaces."""
BATCH = 500
BATCH_CHARS = 256 * 1024
"""Maximum characters of texts in one transaction of ``fold``, as BATCH is the maximum number of items. A transaction
takes about 50 ms."""
SEGMENT = "segment IN (SELECT 0 UNION ALL SELECT id FROM segments WHERE namespace = :namespace AND session = :session)"
"""SQL condition that is true for every segment of the session. With it, SQLite finds an item by its sequence number
through the index (namespace, session, segment, seq)."""
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)


def fold(db: sqlite3.Connection, limit: int) -> int:
    """Copy a batch of at most ``limit`` new texts; if there are no new texts, do a step of other pending work. Returns
    the number of items processed, at least 1.

    An index that turns out to be damaged is created again by the next call.
    """
    indexed = search_index.is_available()
    db.execute("SAVEPOINT folding")
    try:
        if indexed:
            search_index.ensure_index(db)
        taken = _fold_items(db, min(limit, BATCH), indexed=indexed)
        if not taken and indexed:
            taken = _index_texts(db, min(limit, BATCH))
        if not taken and indexed:
            search_index.merge_step(db)
    except sqlite3.DatabaseError as error:
        if not search_index.is_index_error(error):
            raise
        db.execute("ROLLBACK TO folding")
        # If creating the index again has failed too, do not try forever.
        if search_index.has_chore(db, search_index.RENEW):
            raise
        search_index.add_chore(db, search_index.RENEW)
        return 1
    return max(1, taken)


def has_work(db: sqlite3.Connection) -> bool:
    """Return whether ``fold`` has work to do."""
    questions = ["SELECT 1 FROM sessions WHERE folded < head"]
    if search_index.is_available():
        questions += ["SELECT 1 FROM search_unindexed", "SELECT 1 FROM search_chores"]
    return any(db.execute(f"{question} LIMIT 1").fetchone() for question in questions)


def count_left(db: sqlite3.Connection) -> int:
    """Return the number of items whose texts are not yet copied into ``search_texts``, plus the number of texts that
    are not in the index if this SQLite supports one."""
    items = db.execute("SELECT coalesce(sum(head - folded), 0) FROM sessions WHERE folded < head").fetchone()[0]
    texts = db.execute("SELECT count(*) FROM search_unindexed").fetchone()[0] if search_index.is_available() else 0
    return int(items) + int(texts)


def delete_texts(db: sqlite3.Connection, key: SessionKey, seqs: Iterable[int]) -> None:
    """Delete the texts of these items. The items themselves may be deleted before or after this call."""
    at = select_number(db, key)
    if at is not None:
        for seq in seqs:
            _delete_range(db, IdRange(at << SEQ_BITS | seq << 1, at << SEQ_BITS | seq << 1 | 1))


def delete_session_texts(db: sqlite3.Connection, key: SessionKey) -> None:
    """Delete the texts of a session; ``fold`` then copies them again from its first item on."""
    at = select_number(db, key)
    if at is not None:
        _delete_range(db, id_range(at))
        db.execute("DELETE FROM search_places WHERE number = ?", (at,))
    db.execute("UPDATE sessions SET folded = 0 WHERE namespace = ? AND id = ?", pair(key))


def _fold_items(db: sqlite3.Connection, limit: int, *, indexed: bool) -> int:
    """Copy the texts of new items. Returns how many sequence numbers were processed, including those of items that are
    not searched."""
    taken, chars = 0, 0
    while taken < limit and chars < BATCH_CHARS:
        row = db.execute("SELECT namespace, id, folded, head FROM sessions WHERE folded < head LIMIT 1").fetchone()
        if row is None:
            break
        key, folded, head = SessionKey(*row[:2]), row[2], row[3]
        # A session folded from the beginning may still have texts from before a crash or a repair.
        if not folded:
            delete_session_texts(db, key)
        texts: list[tuple[int, float, str]] = []
        until = min(head, folded + limit - taken)
        for seq, role, time, text in select_unfolded(db, key, folded, until):
            chars += len(text)
            if text and not seq >> SEQ_BITS - 1:
                texts.append((id_of(0, seq, role), time, text))
            if chars >= BATCH_CHARS:
                until = seq
                break
        if texts:
            _insert_texts(db, select_number(db, key) or _insert_number(db, key), texts, indexed=indexed)
        db.execute("UPDATE sessions SET folded = ? WHERE namespace = ? AND id = ?", (until, *pair(key)))
        taken += until - folded
    return taken


def _insert_texts(db: sqlite3.Connection, number: int, texts: list[tuple[int, float, str]], *, indexed: bool) -> None:
    rows = [(number << SEQ_BITS | id, time, text) for id, time, text in texts]
    db.executemany("INSERT INTO search_texts (id, time, text) VALUES (?, ?, ?)", rows)
    if indexed:
        search_index.add_texts(db, [(id, text) for id, _, text in rows])
    else:
        db.executemany("INSERT INTO search_unindexed (id) VALUES (?)", [(id,) for id, _, _ in rows])


def _index_texts(db: sqlite3.Connection, limit: int) -> int:
    """Add up to ``limit`` texts to the index that are not in it yet. Returns how many were added."""
    rows = db.execute(
        "SELECT t.id, t.text FROM search_unindexed AS u JOIN search_texts AS t ON t.id = u.id LIMIT ?", (limit,)
    ).fetchall()
    search_index.add_texts(db, rows)
    db.executemany("DELETE FROM search_unindexed WHERE id = ?", [(id,) for id, _ in rows])
    return len(rows)


def _delete_range(db: sqlite3.Connection, ids: IdRange) -> None:
    if db.execute("SELECT 1 FROM search_texts WHERE id BETWEEN ? AND ? LIMIT 1", ids).fetchone() is None:
        return
    search_index.remove_texts(db, ids)
    db.execute("DELETE FROM search_texts WHERE id BETWEEN ? AND ?", ids)
    db.execute("DELETE FROM search_unindexed WHERE id BETWEEN ? AND ?", ids)


def select_unfolded(
    db: sqlite3.Connection, key: SessionKey, after: int, until: int
) -> Iterator[tuple[int, str, float, str]]:
    """Yield (sequence number, role, time, folded text) of the messages of users and models with sequence numbers from
    ``after`` + 1 to ``until``, in order, on all branches."""
    rows = db.execute(
        "SELECT seq, role, time, body FROM items"
        f" WHERE namespace = :namespace AND session = :session AND {SEGMENT} AND seq > :after AND seq <= :until"
        " AND role IN ('user', 'assistant') ORDER BY seq",
        {"namespace": key.namespace, "session": key.id, "after": after, "until": until},
    )
    for seq, role, time, body in rows:
        yield seq, role, time, fold_text(searchable_text(body))


def searchable_text(body: str) -> str:
    """Return the text of a stored message, empty if it cannot be decoded (``verify`` reports that)."""
    try:
        return message_text(serialization.decode(body))
    except _UNREADABLE:
        return ""


# ------------------------------------------------------------------------------------------------ session numbers


def id_range(number: int) -> IdRange:
    """Return the range of the text ids of the session with this number."""
    return IdRange(number << SEQ_BITS, (number + 1 << SEQ_BITS) - 1)


def number_of(id: int) -> int:
    return id >> SEQ_BITS


def seq_of(id: int) -> int:
    return (id & ((1 << SEQ_BITS) - 1)) >> 1


def id_of(number: int, seq: int, role: str) -> int:
    return number << SEQ_BITS | seq << 1 | (role == "assistant")


def role_of(id: int) -> str:
    return "assistant" if id & 1 else "user"


def select_number(db: sqlite3.Connection, key: SessionKey) -> int | None:
    row = db.execute(f"SELECT number FROM search_places WHERE {HERE}", pair(key)).fetchone()
    return int(row[0]) if row else None


def select_number_range(db: sqlite3.Connection, namespace: str) -> tuple[int, int] | None:
    """Return the lowest and the highest session number of a namespace, or None if ``search_texts`` has no texts of the
    namespace."""
    row = db.execute("SELECT min(number), max(number) FROM search_places WHERE namespace = ?", (namespace,)).fetchone()
    return None if row[0] is None else row


def _insert_number(db: sqlite3.Connection, key: SessionKey) -> int:
    """Assign the next number of the namespace to the session. Raises StoreError when none is left."""
    of_namespace = select_number_range(db, key.namespace)
    if of_namespace is None:
        (last,) = db.execute("SELECT coalesce(max(number), 0) FROM search_places").fetchone()
        new = (last >> NUMBER_BITS) + 1 << NUMBER_BITS
        full = new >> 63 - SEQ_BITS
    else:
        new = of_namespace[1] + 1
        full = new >> NUMBER_BITS != of_namespace[1] >> NUMBER_BITS
    if full:
        raise StoreError(
            "There are too many sessions to search.", hint="Copy some of them to another store, and delete them here."
        )
    db.execute("INSERT INTO search_places (number, namespace, session) VALUES (?, ?, ?)", (new, *pair(key)))
    return int(new)
