"""Tests the index of the sqlite store: search gives the same results with it, without it, and with a corrupt one."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SearchHit, SessionKey, SessionQuery, Turn
from agent_kernel.sessions.store import schema_migration
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables import search_index, search_texts

GONE = "fts5_of_elsewhere"


async def say(store: SqliteStore, id: str, *texts: str, turn: str = "t") -> None:
    messages = [(assistant if at % 2 else user)(text) for at, text in enumerate(texts)]
    await store.add_turn(Turn(turn, SessionKey("local", id)), messages)


async def search_ids(store: SqliteStore, text: str) -> list[str]:
    return sorted(hit.session.key.id for hit in await store.search("local", SessionQuery(text, limit=100)))


@pytest.fixture
def without_fts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Disable the FTS5 module, also for files that have a table of it. The yielded function enables it again."""

    def back() -> None:
        monkeypatch.undo()
        search_index.is_available.cache_clear()

    monkeypatch.setattr(search_index, "MODULE", search_index.MODULE.replace("fts5", GONE))
    search_index.is_available.cache_clear()
    yield back
    back()


def rename_module(path: Path, old: str, new: str) -> None:
    """Rename the module in the schema of the file, so that opening its table fails as if the module were missing."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'search_index'", (old, new))
        db.commit()


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[Callable[[], SqliteStore]]:
    made: list[SqliteStore] = []

    def opened() -> SqliteStore:
        made.append(SqliteStore(path))
        return made[-1]

    yield opened
    for store in made:
        await store.aclose()


async def test_without_the_module_search_works_and_says_once_that_it_is_slow(
    without_fts: Callable[[], None], open_store: Callable[[], SqliteStore]
) -> None:
    store = open_store()
    await say(store, "s1", "crystallography")
    with pytest.warns(RuntimeWarning, match="without an index"):
        assert await search_ids(store, "cryst") == ["s1"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert await store.fold() == 0
        assert await search_ids(store, "cryst") == ["s1"]
    assert not told


@pytest.mark.filterwarnings("ignore:SQLite .* has no FTS5")
async def test_a_file_goes_from_one_with_the_module_to_one_without_and_back(
    without_fts: Callable[[], None], open_store: Callable[[], SqliteStore], path: Path
) -> None:
    store = open_store()
    await say(store, "old", "garnet and topaz")
    await say(store, "gone", "garnet")
    assert await store.fold() == 0
    await store.aclose()
    without_fts()

    store = open_store()
    assert await store.fold() == 0
    assert await search_ids(store, "garnet") == ["gone", "old"]
    await say(store, "indexed", "garnet")
    assert await store.fold() == 0
    await store.aclose()
    rename_module(path, "fts5", GONE)
    search_index.is_available.cache_clear()
    search_index.MODULE, kept = search_index.MODULE.replace("fts5", GONE), search_index.MODULE

    store = open_store()
    assert await search_ids(store, "garnet") == ["gone", "indexed", "old"]
    await store.delete(SessionKey("local", "gone"))
    await say(store, "new", "garnet")
    assert await store.fold() == 0
    assert await search_ids(store, "garnet") == ["indexed", "new", "old"]
    await store.aclose()
    rename_module(path, GONE, "fts5")
    search_index.is_available.cache_clear()
    search_index.MODULE = kept

    store = open_store()
    await say(store, "gone", "opal")
    assert await search_ids(store, "garnet") == ["indexed", "new", "old"]
    assert await store.fold() == 0
    assert await search_ids(store, "garnet") == ["indexed", "new", "old"]
    assert await search_ids(store, "opal") == ["gone"]
    await integrity(store)


async def integrity(store: SqliteStore) -> None:
    """Check with FTS5's own check that the index, if there is one, agrees with the texts."""
    if not await store._database.read(search_index.is_usable):
        return
    await store._database.write(
        lambda db: db.execute("INSERT INTO search_index (search_index, rank) VALUES ('integrity-check', 1)")
    )


async def test_what_an_older_version_wrote_is_found_and_folded(path: Path) -> None:
    rows = (
        "INSERT INTO sessions (namespace, id, title, created, updated, head) VALUES ('local', 'old', '', 1, 1, 1)",
        "INSERT INTO turns VALUES ('local', 'old', 't', 1, 'committed', '', '', '', '', '', 1, 2, '{}', '{}', '{}',"
        " '{}', '', 1)",
        "INSERT INTO items VALUES ('local', 'old', 1, 't', 'user', 'message', NULL,"
        ' \'{"role":"user","content":"a topaz"}\', \'\', \'\', 1)',
    )
    old = Database(path, schema_migration.migration_scripts()[:1])
    await old.write(lambda db: [db.execute(row) for row in rows])
    await old.aclose()
    store = SqliteStore(path)
    assert await search_ids(store, "topaz") == ["old"]
    assert await store.fold() == 0
    assert await search_ids(store, "topaz") == ["old"]
    await store.aclose()


async def test_a_row_that_can_not_be_read_stops_nobody(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    await say(store, "s", "topaz", "topaz", "topaz")
    await store._database.write(lambda db: db.execute("UPDATE items SET body = '[' WHERE seq = 2"))
    (hit,) = await store.search("local", SessionQuery("topaz"))
    assert await store.fold() == 0
    assert await store.search("local", SessionQuery("topaz")) == [hit]
    assert [snippet.seq for snippet in hit.snippets] == [1, 3]


async def test_a_damaged_index_is_searched_around_and_made_anew(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    for number in range(30):
        await say(store, f"s{number}", "topaz", f"beryl{number} garnet")
    assert await store.fold() == 0
    await store._database.write(lambda db: db.execute("UPDATE search_index_data SET block = x'00' WHERE id > 10"))
    assert len(await search_ids(store, "garnet")) == 30
    await say(store, "new", "garnet")
    assert len(await search_ids(store, "garnet")) == 31
    assert await store.fold() == 0
    await store._database.write(lambda db: search_index.add_chore(db, search_index.RENEW))
    assert await store.fold() == 0
    assert len(await search_ids(store, "garnet")) == 31
    await integrity(store)


async def test_two_servers_fold_and_forget_in_one_file(open_store: Callable[[], SqliteStore]) -> None:
    one, other = open_store(), open_store()
    await say(one, "a", "garnet")
    assert await one.fold() == 0
    await say(other, "b", "garnet")
    await other.delete(SessionKey("local", "a"))
    assert await search_ids(one, "garnet") == ["b"]
    assert await other.fold() == 0
    await one.pop(SessionKey("local", "b"))
    assert await search_ids(other, "garnet") == []
    await integrity(other)


def terms(db: sqlite3.Connection) -> list[str]:
    """Return the terms in the index, also those of deleted texts."""
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, search_index, row)")
    return [term for (term,) in db.execute("SELECT term FROM temp.terms")]


async def secret_deleted(store: SqliteStore) -> None:
    await say(store, "kept", "garnet " * 20)
    await say(store, "secret", "xyzzyplugh qwertzuiop " * 20, "answer")
    assert await store.fold() == 0
    await store.delete(SessionKey("local", "secret"))


async def test_deleted_text_leaves_the_index_by_itself(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    await secret_deleted(store)
    assert await store.fold() == 0
    assert not await store._database.read(search_texts.has_work)
    left = await store._database.write(terms)
    assert "gar" in left
    assert "xyz" not in left


@pytest.mark.parametrize("renew", [False, True])
async def test_a_vacuum_leaves_nothing_of_deleted_text(
    open_store: Callable[[], SqliteStore], path: Path, renew: bool
) -> None:
    store = open_store()
    await secret_deleted(store)
    if renew:
        await store._database.write(lambda db: search_index.add_chore(db, search_index.RENEW))
    await store.vacuum()
    assert "xyz" not in await store._database.write(terms)
    assert await search_ids(store, "garnet") == ["kept"]
    assert await store.fold() == 0
    assert "gar" in await store._database.write(terms)
    await store.aclose()
    assert b"xyzzy" not in path.read_bytes()
    assert b"garnet" in path.read_bytes()


async def test_what_a_repair_sets_aside_is_found_no_more(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    await say(store, "s", "garnet", "topaz", "beryl")
    assert await store.fold() == 0
    await store._database.write(lambda db: db.execute("UPDATE items SET body = '[' WHERE seq = 2"))
    assert [fault.mended for fault in await store.repair()] == ["set aside"]
    assert await search_ids(store, "topaz") == []
    assert await store.fold() == 0
    assert await search_ids(store, "topaz") == []
    assert await search_ids(store, "beryl") == ["s"]


async def test_a_turn_costs_nothing_for_the_index_until_it_is_folded(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    await say(store, "s", "garnet")

    def count(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT count(*) FROM search_texts").fetchone()[0])

    assert await store._database.read(count) == 0
    assert await store.fold() == 0
    assert await store._database.read(count) == 1


async def test_numbers_of_a_namespace_are_neighbours(open_store: Callable[[], SqliteStore]) -> None:
    store = open_store()
    for namespace, id in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2")):
        await store.add_turn(Turn("t", SessionKey(namespace, id)), [user("garnet")])
        assert await store.fold() == 0
    await store.delete(SessionKey("c", "1"))
    await store.add_turn(Turn("t", SessionKey("d", "1")), [user("garnet")])
    assert await store.fold() == 0
    rows = await store._database.read(
        lambda db: db.execute("SELECT namespace FROM search_places ORDER BY number").fetchall()
    )
    assert [namespace for (namespace,) in rows] == ["a", "a", "b", "b", "d"]


LETTERS = st.text(st.sampled_from("abAB éÉßs石英%_\"'*"), max_size=12)
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "say", "pop", "clear", "delete", "fork", "fold"]), st.integers(0, 2), LETTERS),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, queries=st.lists(LETTERS, min_size=1, max_size=4))
async def test_the_index_finds_what_reading_through_finds(
    steps: list[tuple[str, int, str]], queries: list[str]
) -> None:
    """One store is folded now and then, one in the end, one never."""
    stores = [MemoryStore(clock=lambda: 1.0) for _ in range(3)]
    try:
        for at, (step, session, text) in enumerate(steps):
            for store in stores[: 1 if step == "fold" else 3]:
                await _step(store, step, SessionKey("local", str(session)), f"t{at}", text)
        await stores[1].fold()
        for query in queries:
            answers = [await hits(store, query) for store in stores]
            assert answers[0] == answers[1] == answers[2]
        await stores[0].fold()
        assert await hits(stores[0], queries[0]) == await hits(stores[2], queries[0])
        await integrity(stores[0])
    finally:
        for store in stores:
            await store.aclose()


async def hits(store: SqliteStore, query: str) -> list[tuple[str, float, tuple[Any, ...]]]:
    def plain(hit: SearchHit) -> tuple[str, float, tuple[Any, ...]]:
        return hit.session.key.id, hit.score, hit.snippets

    return [plain(hit) for hit in await store.search("local", SessionQuery(query))]


async def _step(store: SqliteStore, step: str, key: SessionKey, turn: str, text: str) -> None:
    if step == "fold":
        await store.fold()
    elif step == "say":
        await store.add_turn(Turn(turn, key), [user(text), assistant(text[::-1])])
    elif await store.info(key) is not None:
        steps: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "pop": lambda: store.pop(key),
            "clear": lambda: store.clear(key),
            "delete": lambda: store.delete(key),
            "fork": lambda: store.fork(key, SessionKey("local", f"fork {turn}")),
        }
        await steps[step]()
