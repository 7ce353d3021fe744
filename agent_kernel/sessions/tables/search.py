"""Which sessions have the words: counted by id, and read only where the best of them are shown.

What was said is found at once: what is not taken over into search_texts yet is read from the items.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from agent_kernel.core.session import MAX_SNIPPETS, SearchHit, SearchQuery, SessionKey, Snippet
from agent_kernel.sessions.search.search import snippet, weights, words
from agent_kernel.sessions.tables import bindings, search_index, search_texts, sessions
from agent_kernel.sessions.tables.search_index import Ids

_AT_ONCE = 500
"""Variables of one statement."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where to look: in ``ids``, and in what is not taken over of ``sessions`` (None: all)."""

    namespace: str
    query: SearchQuery
    sessions: frozenset[str] | None
    ids: tuple[Ids, ...]

    @property
    def times(self) -> tuple[float, float]:
        since, until = self.query.since, self.query.until
        return -inf if since is None else since, inf if until is None else until

    def only(self, ids: Iterable[int]) -> set[int]:
        """Those of the role that is wanted."""
        if not self.query.role:
            return set(ids)
        return {id for id in ids if search_texts.role_of(id) == self.query.role}


def search(db: sqlite3.Connection, namespace: str, query: SearchQuery) -> list[SearchHit]:
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
        shown = sorted(sorted(ids[number], key=lambda id: (-counted[id], -id))[:MAX_SNIPPETS])
        hits.append(_hit(db, key, scores[number], [search_texts.seq_of(id) for id in shown], wanted))
    return hits


def _scope(db: sqlite3.Connection, namespace: str, query: SearchQuery) -> _Scope:
    sessions = query.sessions
    if query.path:
        bound = bindings.bound(db, namespace, query.root, query.path)
        here = frozenset[str]() if bound is None else frozenset({bound})
        sessions = here if sessions is None else here & sessions
    if sessions is not None:
        known = [search_texts.number(db, SessionKey(namespace, id)) for id in sessions]
        ids = tuple(search_texts.ids(number) for number in known if number is not None)
        return _Scope(namespace, query, sessions, ids)
    extremes = search_texts.numbers(db, namespace)
    if extremes is None:
        return _Scope(namespace, query, None, ())
    first, last = (search_texts.ids(number) for number in extremes)
    return _Scope(namespace, query, None, (Ids(first.first, last.last),))


def _taken_over(db: sqlite3.Connection, scope: _Scope, word: str) -> Iterator[int]:
    """Ids of texts with the word, by the index where that can be. What is outside of the scope is not even looked at:
    how long a search takes must not tell of it."""
    indexed = len(word) >= search_index.SHORTEST and search_index.usable(db)
    for ids in scope.ids:
        found = _in_range(db, ids, word, indexed=indexed)
        if scope.times != (-inf, inf):
            of_then = db.execute(
                "SELECT id FROM search_texts WHERE id BETWEEN ? AND ? AND time BETWEEN ? AND ?", (*ids, *scope.times)
            )
            found = set(found).intersection(id for (id,) in of_then)
        yield from found


def _in_range(db: sqlite3.Connection, ids: Ids, word: str, *, indexed: bool) -> Collection[int]:
    if indexed:
        try:
            found = search_index.lookup(db, word, ids)
            return found + _read_through(db, ids, word, "AND id IN (SELECT id FROM search_unindexed)")
        except sqlite3.DatabaseError as error:
            if not search_index.broken(error):
                raise
    return _read_through(db, ids, word)


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


def _hit(
    db: sqlite3.Connection, key: SessionKey, score: float, seqs: Collection[int], wanted: Collection[str]
) -> SearchHit:
    session = sessions.found(db, key)
    shown = (_snippet(db, key, seq, wanted) for seq in seqs)
    return SearchHit(session, score, tuple(piece for piece in shown if piece is not None))


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
