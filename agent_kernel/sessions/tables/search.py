"""Which sessions have the words: counted by id, and read only where the best of them are shown.

What was said is found at once: what is not taken over into search_texts yet is read from the items.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from agent_kernel.sessions.model import SNIPPETS, Hit, Query, SessionKey, Snippet
from agent_kernel.sessions.search import snippet, weights, words
from agent_kernel.sessions.tables import bindings, search_index, search_texts
from agent_kernel.sessions.tables.rows import SESSION, pair, session_of
from agent_kernel.sessions.tables.search_index import Ids

_AT_ONCE = 500
"""Variables of one statement."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where to look. ``sessions`` and their ``numbers`` None: everywhere from the first to the last of ``ids``."""

    namespace: str
    query: Query
    sessions: frozenset[str] | None
    numbers: frozenset[int] | None
    ids: Ids

    @property
    def times(self) -> tuple[float, float]:
        since, until = self.query.since, self.query.until
        return -inf if since is None else since, inf if until is None else until

    def only(self, ids: Iterable[int]) -> set[int]:
        """Those of the role and the sessions that are wanted."""
        found = set(ids)
        if self.query.role:
            found = {id for id in found if search_texts.role_of(id) == self.query.role}
        if self.numbers is not None:
            found = {id for id in found if search_texts.number_of(id) in self.numbers}
        return found


def search(db: sqlite3.Connection, namespace: str, query: Query) -> list[Hit]:
    wanted = words(query)
    scope = _scope(db, namespace, query)
    if not wanted or not query.limit or scope.sessions == frozenset():
        return []
    found = {word: scope.only(_taken_over(db, scope, word)) for word in wanted}
    new = _add_new(db, scope, found)
    counted = weights(found)
    scores: dict[int, float] = defaultdict(float)
    for id, weight in counted.items():
        scores[search_texts.number_of(id)] += weight
    best = _best(db, scope, scores, new)
    ids: dict[int, list[int]] = {number: [] for number, _ in best}
    for id in counted:
        if (of_best := ids.get(search_texts.number_of(id))) is not None:
            of_best.append(id)
    hits = []
    for number, key in best:
        shown = sorted(sorted(ids[number], key=lambda id: (-counted[id], -id))[:SNIPPETS])
        hits.append(_hit(db, key, scores[number], [search_texts.seq_of(id) for id in shown], wanted))
    return hits


def _scope(db: sqlite3.Connection, namespace: str, query: Query) -> _Scope:
    sessions = query.sessions
    if query.path:
        bound = bindings.bound(db, namespace, query.root, query.path)
        here = frozenset[str]() if bound is None else frozenset({bound})
        sessions = here if sessions is None else here & sessions
    if sessions is None:
        numbers = None
        extremes = search_texts.numbers(db, namespace)
    else:
        known = (search_texts.number(db, SessionKey(namespace, id)) for id in sessions)
        numbers = frozenset(number for number in known if number is not None)
        extremes = (min(numbers), max(numbers)) if numbers else None
    none = Ids(0, -1)
    ids = Ids(search_texts.ids(extremes[0]).first, search_texts.ids(extremes[1]).last) if extremes else none
    return _Scope(namespace, query, sessions, numbers, ids)


def _taken_over(db: sqlite3.Connection, scope: _Scope, word: str) -> Collection[int]:
    """Ids of texts with the word, by the index where that can be."""
    found: Collection[int] | None = None
    if len(word) >= search_index.SHORTEST and search_index.usable(db):
        try:
            found = search_index.lookup(db, word, scope.ids)
        except sqlite3.DatabaseError as error:
            if not search_index.broken(error):
                raise
    if found is None:
        found = _read_through(db, scope.ids, word)
    else:
        found = [*found, *_read_through(db, scope.ids, word, "AND id IN (SELECT id FROM search_unindexed)")]
    if scope.times == (-inf, inf):
        return found
    of_then = db.execute(
        "SELECT id FROM search_texts WHERE id BETWEEN ? AND ? AND time BETWEEN ? AND ?", (*scope.ids, *scope.times)
    )
    return set(found).intersection(id for (id,) in of_then)


def _read_through(db: sqlite3.Connection, ids: Ids, word: str, more: str = "") -> list[int]:
    """Unlike LIKE, ``instr`` has no signs to escape; case is gone from both sides already."""
    rows = db.execute(f"SELECT id FROM search_texts WHERE id BETWEEN ? AND ? AND instr(text, ?) {more}", (*ids, word))
    return [id for (id,) in rows]


def _add_new(db: sqlite3.Connection, scope: _Scope, found: Mapping[str, set[int]]) -> dict[int, str]:
    """Adds what was not taken over. Sessions that have no number get one below 0; which they are."""
    new: dict[int, str] = {}
    since, until = scope.times
    for at, (key, folded, head) in enumerate(_behind(db, scope), start=1):
        number = search_texts.number(db, key)
        if number is None:
            number = -at
            new[number] = key.id
        for seq, role, time, text in search_texts.unfolded(db, key, folded, head):
            if scope.query.role in ("", role) and since <= time <= until:
                for word, ids in found.items():
                    if word in text:
                        ids.add(search_texts.id_of(number, seq, role))
    return new


def _behind(db: sqlite3.Connection, scope: _Scope) -> Iterator[tuple[SessionKey, int, int]]:
    """(session, how far it was taken over, its head)"""
    rows = db.execute(
        "SELECT id, folded, head FROM sessions WHERE namespace = ? AND folded < head", (scope.namespace,)
    ).fetchall()
    for session, folded, head in rows:
        if scope.sessions is None or session in scope.sessions:
            yield SessionKey(scope.namespace, session), folded, head


def _best(
    db: sqlite3.Connection, scope: _Scope, scores: Mapping[int, float], new: Mapping[int, str]
) -> list[tuple[int, SessionKey]]:
    """(number, session) by score, then the one that changed last, then by id."""
    used = -inf if scope.query.used is None else scope.query.used
    rows: list[tuple[int, str, float]] = []
    numbers = [number for number in scores if number not in new]
    for start in range(0, len(numbers), _AT_ONCE):
        part = numbers[start : start + _AT_ONCE]
        rows += db.execute(
            "SELECT p.number, s.id, s.updated FROM search_places AS p CROSS JOIN sessions AS s"
            " ON s.namespace = p.namespace AND s.id = p.session"
            f" WHERE p.number IN ({', '.join('?' * len(part))}) AND s.accessed >= ?",
            (*part, used),
        ).fetchall()
    for number in scores.keys() & new.keys():
        rows += db.execute(
            "SELECT ?, id, updated FROM sessions WHERE namespace = ? AND id = ? AND accessed >= ?",
            (number, scope.namespace, new[number], used),
        ).fetchall()
    rows.sort(key=lambda row: (-scores[row[0]], -row[2], row[1]))
    return [(number, SessionKey(scope.namespace, id)) for number, id, _ in rows[: scope.query.limit]]


def _hit(db: sqlite3.Connection, key: SessionKey, score: float, seqs: Collection[int], wanted: Collection[str]) -> Hit:
    row = db.execute(f"SELECT {SESSION} FROM sessions WHERE namespace = ? AND id = ?", pair(key)).fetchone()
    shown = (_snippet(db, key, seq, wanted) for seq in seqs)
    return Hit(session_of(row), score, tuple(piece for piece in shown if piece is not None))


def _snippet(db: sqlite3.Connection, key: SessionKey, seq: int, wanted: Collection[str]) -> Snippet | None:
    row = db.execute(
        "SELECT turn, cell, role, body, time FROM items"
        f" WHERE namespace = :namespace AND session = :session AND {search_texts.SEGMENT} AND seq = :seq",
        {"namespace": key.namespace, "session": key.id, "seq": seq},
    ).fetchone()
    if row is None:
        return None
    turn, cell, role, body, time = row
    return Snippet(seq, turn, cell, role, snippet(search_texts.said_in(body), wanted), time)
