"""Tests ``agent-kernel sessions copy`` as users and programs call it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.conftest import Command

KEY = SessionKey("local", "rain")


async def fill_store(store: SqliteStore) -> None:
    await store.add_turn(Turn("t1", KEY), [user("how much rain falls?"), assistant("2 mm")])
    await store.add_turn(Turn("t1", SessionKey("ann", "hers")), [user("hello"), assistant("yes")])
    await store.bind("ann", "/work", "a.ipynb", "hers")


@pytest.fixture
def sessions(command: Command) -> Command:
    command.on_store(fill_store)
    return command


def test_every_session_goes_into_another_store_and_a_second_run_finds_nothing_to_do(
    sessions: Command, tmp_path: Path
) -> None:
    there = f"files:{tmp_path / 'there'}"
    first = sessions("sessions", "copy", "configured", there)
    assert (first.status, first.out, first.err) == (0, "2 copied\n", "")
    again = sessions("sessions", "copy", f"sqlite:{sessions.data / 'sessions.db'}", there, "--json")
    assert (again.status, again.json["running"], again.json["notebooks_left_out"]) == (0, 0, [])
    rows = [(row["namespace"], row["id"], row["state"], row["items"]) for row in again.json["sessions"]]
    assert sorted(rows) == [("ann", "hers", "equal", 2), ("local", "rain", "equal", 2)]
    back = sessions("sessions", "copy", there, f"sqlite:{tmp_path / 'back.db'}", "--namespace", "ann")
    assert (back.status, back.out) == (0, "1 copied\n")


def test_what_differs_is_left_and_named_until_it_is_to_be_replaced(sessions: Command, tmp_path: Path) -> None:
    there = f"sqlite:{tmp_path / 'there.db'}"
    assert sessions("sessions", "copy", "configured", there).status == 0

    async def go_on() -> None:
        store = SqliteStore(tmp_path / "there.db")
        await store.add_turn(Turn("t2", KEY), [user("and snow?"), assistant("none")])
        await store.aclose()

    asyncio.run(go_on())
    left = sessions("sessions", "copy", "configured", there)
    assert (left.status, left.out) == (1, "1 differs, 1 equal\n")
    assert left.err.splitlines() == [
        "differs: local rain",
        "Sessions that differ were not changed; --replace overwrites them.",
    ]
    assert sessions("sessions", "copy", "configured", there, "--replace").out == "1 copied, 1 equal\n"


def test_a_running_turn_is_left_for_later(sessions: Command, tmp_path: Path) -> None:
    async def begin(store: SqliteStore) -> None:
        await store.open_turn(Turn("t2", KEY), Owner.here())

    sessions.on_store(begin)
    left = sessions("sessions", "copy", "configured", f"sqlite:{tmp_path / 'there.db'}")
    assert (left.status, left.out) == (1, "1 copied\n")
    assert left.err == "1 session(s) were not copied, because they have a running turn. Run the command again later.\n"


@pytest.mark.parametrize(
    ("stores", "says"),
    [
        ("sqlite:nowhere.db sqlite:there.db", "There is no store at nowhere.db."),
        ("configured configured", "FROM and TO are the same store."),
        ("configured memory:", "A store in memory cannot be copied from or to"),
        ("configured mysql://ann:secret@db/x", "This version has no store for mysql: URLs."),
        ("configured there.db", "The URL of a store begins with a scheme and a colon."),
    ],
)
def test_what_can_not_be_copied_is_refused_before_anything_is_written(
    sessions: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    refused = sessions("sessions", "copy", *stores.split())
    assert refused.status != 0
    assert says in refused.err
    assert "secret" not in refused.err
    assert set(tmp_path.iterdir()) == before
