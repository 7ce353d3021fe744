"""Maintains and searches the trigram index over ``search_texts``. The index only makes search faster: if it is missing
or unusable, the texts are read instead.

The index stores which texts contain which trigrams, but not their positions, so each candidate is checked against its
text. Without positions the index is half as large and a third faster to fill. It cannot find words of one or two
characters.
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
"""The FTS5 table of the index: its texts are in another table (content=), and it stores no positions and no column
sizes."""
SHORTEST = 3
"""Characters of the shortest word that the index can find."""
_TRIGRAMS = 24
"""Maximum number of trigrams of one word that are looked up; more would hardly reduce the candidates."""
_MERGED_PAGES = 500
"""Number of pages that one merge step writes."""
RENEW, MERGE, MERGING = "renew", "merge", "merging"
"""Names of pending work on the index. RENEW: texts changed while there was no index, so it must be built again. MERGE:
the index still contains deleted entries. MERGING: a part of them was merged."""


class IdRange(NamedTuple):
    first: int
    last: int


@functools.cache
def is_available() -> bool:
    """Return whether this SQLite library supports the index. This creates a temporary table to find out, because CREATE
    ... IF NOT EXISTS would succeed for an existing table even without the FTS5 module."""
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


def is_usable(db: sqlite3.Connection) -> bool:
    """Return whether the index exists and contains the current texts."""
    return is_available() and _exists(db) and not has_chore(db, RENEW)


def ensure_index(db: sqlite3.Connection) -> None:
    """Create the index, or create it again if it is unusable. All texts are then queued for it."""
    if is_usable(db):
        return
    db.execute("DROP TABLE IF EXISTS search_index")
    db.execute(f"CREATE VIRTUAL TABLE search_index USING {MODULE}")
    db.execute("INSERT OR IGNORE INTO search_unindexed SELECT id FROM search_texts")
    db.execute("DELETE FROM search_chores")


def add_texts(db: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    db.executemany("INSERT INTO search_index (rowid, text) VALUES (?, ?)", texts)


def remove_texts(db: sqlite3.Connection, ids: IdRange) -> None:
    """Remove the entries of these texts, which must still exist. From now on the index does not find them; later merge
    steps delete their trigrams from the file."""
    if not is_usable(db):
        add_chore(db, RENEW)
        return
    db.execute(
        "INSERT INTO search_index (search_index, rowid, text) SELECT 'delete', id, text FROM search_texts"
        " WHERE id BETWEEN ? AND ? AND id NOT IN (SELECT id FROM search_unindexed)",
        ids,
    )
    add_chore(db, MERGE)


def merge_step(db: sqlite3.Connection) -> bool:
    """Do one step of deleting removed entries from the file. Returns False if nothing is left to do."""
    if has_chore(db, MERGE):
        db.execute("DELETE FROM search_chores WHERE name = ?", (MERGE,))
        add_chore(db, MERGING)
        return _merge(db, -_MERGED_PAGES)
    return has_chore(db, MERGING) and _merge(db, _MERGED_PAGES)


def merge_all(db: sqlite3.Connection) -> None:
    """Do all steps of ``merge_step`` at once, before the file is vacuumed. Without FTS5 this does nothing, and trigrams
    of deleted texts stay in the file."""
    if is_available() and _exists(db):
        ensure_index(db)
        db.execute("INSERT INTO search_index (search_index) VALUES ('optimize')")
        db.execute("DELETE FROM search_chores WHERE name IN (?, ?)", (MERGE, MERGING))


def find_texts(db: sqlite3.Connection, word: str, ids: IdRange) -> list[int]:
    """Return the ids of indexed texts that contain the word, which has at least SHORTEST characters."""
    trigrams = [*dict.fromkeys(word[at : at + 3] for at in range(len(word) - 2))]
    # Only every n-th trigram is used, so that at most _TRIGRAMS remain, spread over the word.
    chosen_trigrams = trigrams[:: max(1, -(-len(trigrams) // _TRIGRAMS))]
    quoted = [trigram.replace('"', '""') for trigram in chosen_trigrams]
    rows = db.execute(
        "SELECT t.id FROM search_index CROSS JOIN search_texts AS t ON t.id = search_index.rowid"
        " WHERE search_index MATCH ? AND search_index.rowid BETWEEN ? AND ? AND instr(t.text, ?)",
        (" AND ".join(f'"{trigram}"' for trigram in quoted), *ids, word),
    )
    return [id for (id,) in rows]


def is_index_error(error: sqlite3.DatabaseError) -> bool:
    """Return whether the error concerns only the index, which is damaged or was written by a newer FTS5, and not the
    whole file."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT_VTAB)


def add_chore(db: sqlite3.Connection, chore: str) -> None:
    db.execute("INSERT OR IGNORE INTO search_chores (name) VALUES (?)", (chore,))


def has_chore(db: sqlite3.Connection, chore: str) -> bool:
    return db.execute("SELECT 1 FROM search_chores WHERE name = ?", (chore,)).fetchone() is not None


def _exists(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'search_index'").fetchone() is not None


def _merge(db: sqlite3.Connection, pages: int) -> bool:
    """Do a merge step that writes about ``pages`` pages, and return whether it changed anything. FTS5 reports this in
    total_changes: fewer than two changes mean that nothing was left to merge."""
    before = db.total_changes
    db.execute("INSERT INTO search_index (search_index, rank) VALUES ('merge', ?)", (pages,))
    if db.total_changes - before < 2:
        db.execute("DELETE FROM search_chores WHERE name = ?", (MERGING,))
        return False
    return True
