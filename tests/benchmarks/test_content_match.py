"""Measures how long it takes to find the session whose history begins like a request's, among many sessions with
distinct and with identical beginnings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions import conversation_match, message_comparison
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none

FEW, MANY = 100, 10_000
SCOPE = "scope"
REPEAT = 40


def own(number: int) -> list[Message]:
    return [user(f"What is {number}?"), assistant(f"It is {number}."), user("And more?"), assistant("No.")]


def alike(number: int) -> list[Message]:
    return [user("hi"), assistant("Hello!")]


def long_ago(number: int) -> list[Message]:
    """Return messages for the worst case: so many sessions begin alike that the search goes through all sessions from
    the newest on, and the matching ones are old.
    """
    return alike(number) if number < 800 else own(number)


async def fill_store(path: Path, count: int, said: Callable[[int], list[Message]]) -> SqliteStore:
    """Return a store with ``count`` sessions and their openings, written as the store does, in one transaction."""
    store = SqliteStore(path)
    database: Database = store._database
    await store.create(SessionKey("local", "first"))

    def fill(db: object) -> None:
        for number in range(count):
            chain = message_comparison.hash_chain(said(number))
            db.execute(  # type: ignore[attr-defined]  # a connection
                "INSERT INTO sessions (namespace, id, title, created, updated, accessed)"
                " VALUES ('local', ?, '', ?, ?, ?)",
                (f"s{number}", number, number, number),
            )
            for seq, digest in enumerate(chain, 1):
                db.execute(  # type: ignore[attr-defined]  # a connection
                    "INSERT INTO openings (namespace, scope, hash, session, seq) VALUES ('local', ?, ?, ?, ?)",
                    (SCOPE, digest, f"s{number}", seq),
                )

    await database.write(fill)
    return store


async def cost(store: SqliteStore, request: list[Message]) -> float:
    """Return the shortest time of a search in milliseconds, event loop included."""
    taken = []
    for _ in range(REPEAT):
        started = time.perf_counter()
        await conversation_match.find_session(store, "local", SCOPE, request)
        taken.append((time.perf_counter() - started) * 1000)
    return min(taken)


async def test_the_worst_case_is_said(tmp_path: Path) -> None:
    store = await fill_store(tmp_path / "s.db", MANY, long_ago)
    request = [*alike(0), user("go on")]
    assert not_none(await conversation_match.find_session(store, "local", SCOPE, request)).id == "s799"
    print(f"\n800 of {MANY:,} began alike, all long ago: {await cost(store, request):.2f} ms")
    await store.aclose()


@pytest.mark.parametrize("kind", ["own", "alike"])
async def test_content_match_costs_the_same_among_ten_thousand_sessions(kind: str, tmp_path: Path) -> None:
    said = own if kind == "own" else alike
    figures = []
    for count in (FEW, MANY):
        store = await fill_store(tmp_path / f"{count}.db", count, said)
        request = [*said(count // 2), user("go on")]
        found = not_none(await conversation_match.find_session(store, "local", SCOPE, request))
        assert found.id == (f"s{count // 2}" if kind == "own" else f"s{count - 1}")
        hit = await cost(store, request)
        missed = await cost(store, [user("never"), assistant("said"), user("here")])
        figures.append((hit, missed))
        await store.aclose()
    (few, few_missed), (many, many_missed) = figures
    print(
        f"\n{kind}: found among {FEW:,} in {few:.2f} ms, among {MANY:,} in {many:.2f} ms; "
        f"none found in {few_missed:.2f} and {many_missed:.2f} ms"
    )
    assert many < 8 * few
    assert many_missed < 4 * few_missed


async def test_a_turn_of_a_found_session_is_as_cheap_to_remember_at_its_thousandth_message(tmp_path: Path) -> None:
    """In units of reading that conversation, which every replay does."""
    store = SqliteStore(tmp_path / "s.db")
    key = SessionKey("local", "s")
    said = [message for n in range(500) for message in (user(f"u{n}"), assistant(f"a{n}"))]
    await store.add_turn(Turn("t", key), said)
    await conversation_match.remember_openings(store, key, SCOPE)
    started = time.perf_counter()
    for _ in range(5):
        await store.latest(key, failed=False)
    reading = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(5):
        await conversation_match.remember_openings(store, key, SCOPE, after=998)
    remembering = time.perf_counter() - started
    print(f"\nreading 1,000 messages {reading * 200:.2f} ms, remembering the newest of them {remembering * 200:.2f} ms")
    assert remembering < 8 * reading
    await store.aclose()
