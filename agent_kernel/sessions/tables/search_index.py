"""The trigram index over search_texts, an accelerator: without it, or when it can not be used, texts are read through.

It holds which text has which three characters, not where: the candidates it gives are checked against the text, and it
is half as large and a third faster to fill. Words of one or two characters are not in it.
"""

from __future__ import annotations

import functools
import sqlite3
import warnings
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

MODULE = (
    "fts5(text, content='search_texts', content_rowid='id', tokenize='trigram case_sensitive 1', detail=none,"
    " columnsize=0)"
)
SHORTEST = 3
"""Characters of a word that can be looked up."""
_TRIGRAMS = 24
"""Of one word; more would find the same candidates."""
_MERGED_PAGES = 500
"""Written by one step of taking deleted entries out."""
RENEW, MERGE, MERGING = "renew", "merge", "merging"
"""Chores. The texts changed where there is no index; deleted entries are still in it; and a part of them."""


class Ids(NamedTuple):
    first: int
    last: int


@functools.cache
def available() -> bool:
    """This SQLite can have the index. Asked once, of a table that is not there yet: CREATE ... IF NOT EXISTS succeeds
    on one that is, also without the module."""
    try:
        with closing(sqlite3.connect(":memory:")) as probe:
            probe.execute("CREATE TABLE temp.search_texts (id INTEGER PRIMARY KEY, text TEXT)")
            probe.execute(f"CREATE VIRTUAL TABLE temp.probe USING {MODULE}")
    except sqlite3.OperationalError:
        warnings.warn(
            f"SQLite {sqlite3.sqlite_version} has no FTS5 with trigrams (3.34 or newer): sessions are searched without"
            " an index, which is slower where there are many.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def usable(db: sqlite3.Connection) -> bool:
    """It is there and agrees with the texts."""
    return available() and _exists(db) and not has(db, RENEW)


def ready(db: sqlite3.Connection) -> None:
    """Makes it, or makes it anew; then all texts are to be put into it."""
    if usable(db):
        return
    db.execute("DROP TABLE IF EXISTS search_index")
    db.execute(f"CREATE VIRTUAL TABLE search_index USING {MODULE}")
    db.execute("INSERT OR IGNORE INTO search_unindexed SELECT id FROM search_texts")
    db.execute("DELETE FROM search_chores")


def add(db: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    db.executemany("INSERT INTO search_index (rowid, text) VALUES (?, ?)", texts)


def remove(db: sqlite3.Connection, ids: Ids) -> None:
    """The entries of these texts, which are still there. What is deleted is found no more at once, and leaves the file
    with the next merges."""
    if not usable(db):
        note(db, RENEW)
        return
    db.execute(
        "INSERT INTO search_index (search_index, rowid, text) SELECT 'delete', id, text FROM search_texts"
        " WHERE id BETWEEN ? AND ? AND id NOT IN (SELECT id FROM search_unindexed)",
        ids,
    )
    note(db, MERGE)


def tidy(db: sqlite3.Connection) -> bool:
    """One step of taking deleted entries out of the file; False when there are none."""
    if has(db, MERGE):
        db.execute("DELETE FROM search_chores WHERE name = ?", (MERGE,))
        note(db, MERGING)
        return _merge(db, -_MERGED_PAGES)
    return has(db, MERGING) and _merge(db, _MERGED_PAGES)


def purge(db: sqlite3.Connection) -> None:
    """All steps of ``tidy`` at once, for whoever is about to vacuum the file. Without the module nothing can be done:
    three characters each of deleted texts stay."""
    if available() and _exists(db):
        ready(db)
        db.execute("INSERT INTO search_index (search_index) VALUES ('optimize')")
        db.execute("DELETE FROM search_chores WHERE name IN (?, ?)", (MERGE, MERGING))


def lookup(db: sqlite3.Connection, word: str, ids: Ids) -> list[int]:
    """Those of indexed texts with the word, of at least SHORTEST characters."""
    trigrams = [*dict.fromkeys(word[at : at + 3] for at in range(len(word) - 2))]
    some = trigrams[:: max(1, -(-len(trigrams) // _TRIGRAMS))]
    quoted = [trigram.replace('"', '""') for trigram in some]
    rows = db.execute(
        "SELECT t.id FROM search_index CROSS JOIN search_texts AS t ON t.id = search_index.rowid"
        " WHERE search_index MATCH ? AND search_index.rowid BETWEEN ? AND ? AND instr(t.text, ?)",
        (" AND ".join(f'"{trigram}"' for trigram in quoted), *ids, word),
    )
    return [id for (id,) in rows]


def broken(error: sqlite3.DatabaseError) -> bool:
    """The error says that the index can not be used (damaged, or of a newer FTS5), not that the file can not."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT_VTAB)


def note(db: sqlite3.Connection, chore: str) -> None:
    db.execute("INSERT OR IGNORE INTO search_chores (name) VALUES (?)", (chore,))


def has(db: sqlite3.Connection, chore: str) -> bool:
    return db.execute("SELECT 1 FROM search_chores WHERE name = ?", (chore,)).fetchone() is not None


def _exists(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'search_index'").fetchone() is not None


def _merge(db: sqlite3.Connection, pages: int) -> bool:
    """Fewer than two changes: it had nothing left to merge."""
    before = db.total_changes
    db.execute("INSERT INTO search_index (search_index, rank) VALUES ('merge', ?)", (pages,))
    if db.total_changes - before < 2:
        db.execute("DELETE FROM search_chores WHERE name = ?", (MERGING,))
        return False
    return True
