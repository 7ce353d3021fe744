"""Searches the texts of sessions. Matches are counted by the ids of texts, and rows are read only for the best
sessions.

New messages are found at once: messages whose text is not yet copied ("folded") into ``search_texts`` are read from the
items.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from agent_kernel.core.session import MAX_SNIPPETS, SearchHit, SessionKey, SessionQuery, Snippet
from agent_kernel.sessions.search.text_matching import cut_snippet, search_words, weigh_messages
from agent_kernel.sessions.tables import bindings, search_index, search_texts, sessions
from agent_kernel.sessions.tables.search_index import IdRange

_AT_ONCE = 500
"""Maximum number of variables in one statement."""


@dataclass(frozen=True, slots=True)
class _SearchScope:
    """The part of the store in which a search looks: the texts with ids in the ranges ``ids``, and the items of
    ``sessions`` (None: of all sessions) whose texts are not yet copied into ``search_texts``."""

    namespace: str
    query: SessionQuery
    sessions: frozenset[str] | None
    ids: tuple[IdRange, ...]

    @property
    def times(self) -> tuple[float, float]:
        since, until = self.query.since, self.query.until
        return -inf if since is None else since, inf if until is None else until

    def only(self, ids: Iterable[int]) -> set[int]:
        """Return those of the text ids whose message has the role that the query requests."""
        if not self.query.role:
            return set(ids)
        return {id for id in ids if search_texts.role_of(id) == self.query.role}


def search(db: sqlite3.Connection, namespace: str, query: SessionQuery) -> list[SearchHit]:
    words = search_words(query)
    scope = _scope(db, namespace, query)
    if not words or not query.limit or scope.sessions == frozenset():
        return []
    ids_by_word = {word: scope.only(_match_folded(db, scope, word)) for word in words}
    new = _add_unfolded(db, scope, ids_by_word)
    counted = weigh_messages(ids_by_word)
    scores: dict[int, float] = defaultdict(float)
    for id, weight in counted.items():
        scores[search_texts.number_of(id)] += weight
    best = _rank_sessions(db, scope, scores, new)
    ids: dict[int, list[int]] = {number: [] for number, _ in best}
    for id in counted:
        if (of_best := ids.get(search_texts.number_of(id))) is not None:
            of_best.append(id)
    hits = []
    for number, key in best:
        snippet_ids = sorted(sorted(ids[number], key=lambda id: (-counted[id], -id))[:MAX_SNIPPETS])
        hits.append(_read_hit(db, key, scores[number], [search_texts.seq_of(id) for id in snippet_ids], words))
    return hits


def _scope(db: sqlite3.Connection, namespace: str, query: SessionQuery) -> _SearchScope:
    sessions = query.sessions
    if query.path:
        bound = bindings.select_bound_session(db, namespace, query.root, query.path)
        bound_sessions = frozenset[str]() if bound is None else frozenset({bound})
        sessions = bound_sessions if sessions is None else bound_sessions & sessions
    if sessions is not None:
        numbers = [search_texts.select_number(db, SessionKey(namespace, id)) for id in sessions]
        ids = tuple(search_texts.id_range(number) for number in numbers if number is not None)
        return _SearchScope(namespace, query, sessions, ids)
    extremes = search_texts.select_number_range(db, namespace)
    if extremes is None:
        return _SearchScope(namespace, query, None, ())
    first, last = (search_texts.id_range(number) for number in extremes)
    return _SearchScope(namespace, query, None, (IdRange(first.first, last.last),))


def _match_folded(db: sqlite3.Connection, scope: _SearchScope, word: str) -> Iterator[int]:
    """Yield the ids of the texts in ``search_texts`` that contain the word, using the index where possible.

    Texts outside the scope are not read at all, so that the duration of a search reveals nothing about them.
    """
    indexed = len(word) >= search_index.SHORTEST and search_index.is_usable(db)
    for ids in scope.ids:
        matches = _match_in_range(db, ids, word, indexed=indexed)
        if scope.times != (-inf, inf):
            of_then = db.execute(
                "SELECT id FROM search_texts WHERE id BETWEEN ? AND ? AND time BETWEEN ? AND ?", (*ids, *scope.times)
            )
            matches = set(matches).intersection(id for (id,) in of_then)
        yield from matches


def _match_in_range(db: sqlite3.Connection, ids: IdRange, word: str, *, indexed: bool) -> Collection[int]:
    if indexed:
        try:
            matches = search_index.find_texts(db, word, ids)
            return matches + _scan_texts(db, ids, word, "AND id IN (SELECT id FROM search_unindexed)")
        except sqlite3.DatabaseError as error:
            if not search_index.is_index_error(error):
                raise
    return _scan_texts(db, ids, word)


def _scan_texts(db: sqlite3.Connection, ids: IdRange, word: str, condition: str = "") -> list[int]:
    """Search by reading the texts in the id range. ``condition`` is a further SQL condition. Unlike LIKE, ``instr``
    has no wildcards to escape; both sides are case-folded already."""
    rows = db.execute(
        f"SELECT id FROM search_texts WHERE id BETWEEN ? AND ? AND instr(text, ?) {condition}", (*ids, word)
    )
    return [id for (id,) in rows]


def _add_unfolded(db: sqlite3.Connection, scope: _SearchScope, matches: Mapping[str, set[int]]) -> dict[int, str]:
    """Add to ``matches`` (word -> text ids) the matches in items whose texts are not yet copied into ``search_texts``.
    Sessions without a number get a temporary negative number. Returns temporary number -> session id."""
    new: dict[int, str] = {}
    since, until = scope.times
    for at, (key, folded, head) in enumerate(_select_behind(db, scope), start=1):
        number = search_texts.select_number(db, key)
        if number is None:
            number = -at
            new[number] = key.id
        for seq, role, time, text in search_texts.select_unfolded(db, key, folded, head):
            if scope.query.role in ("", role) and since <= time <= until:
                for word, ids in matches.items():
                    if word in text:
                        ids.add(search_texts.id_of(number, seq, role))
    return new


def _select_behind(db: sqlite3.Connection, scope: _SearchScope) -> Iterator[tuple[SessionKey, int, int]]:
    """Yield (session, sequence number of the last item whose text is in ``search_texts``, sequence number of the last
    item) for each session in the scope that has items whose texts are still to be copied."""
    rows = db.execute(
        "SELECT id, folded, head FROM sessions WHERE namespace = ? AND folded < head", (scope.namespace,)
    ).fetchall()
    for session, folded, head in rows:
        if scope.sessions is None or session in scope.sessions:
            yield SessionKey(scope.namespace, session), folded, head


def _rank_sessions(
    db: sqlite3.Connection, scope: _SearchScope, scores: Mapping[int, float], new: Mapping[int, str]
) -> list[tuple[int, SessionKey]]:
    """Return (number, session) of the best sessions, sorted by score, then by last change, then by id. ``new`` maps
    temporary numbers to session ids."""
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


def _read_hit(
    db: sqlite3.Connection, key: SessionKey, score: float, seqs: Collection[int], words: Collection[str]
) -> SearchHit:
    session = sessions.require_session(db, key, counts=True)
    snippets = (_read_snippet(db, key, seq, words) for seq in seqs)
    return SearchHit(session, score, tuple(piece for piece in snippets if piece is not None))


def _read_snippet(db: sqlite3.Connection, key: SessionKey, seq: int, words: Collection[str]) -> Snippet | None:
    row = db.execute(
        "SELECT turn, cell, role, body, time FROM items"
        f" WHERE namespace = :namespace AND session = :session AND {search_texts.SEGMENT} AND seq = :seq",
        {"namespace": key.namespace, "session": key.id, "seq": seq},
    ).fetchone()
    if row is None:
        return None
    turn, cell, role, body, time = row
    return Snippet(seq, turn, cell, role, cut_snippet(search_texts.searchable_text(body), words), time)
