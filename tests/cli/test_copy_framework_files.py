"""``agent-kernel sessions copy`` from files that openai-agents and selectools wrote (tests/peers makes them)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import TypeVar

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.conftest import Command
from tests.sessions.adapters.framework_samples import (
    AGENTS,
    DATA,
    SELECTOOLS,
    expected,
    read_as_agents_sdk,
    read_as_selectools,
    with_every_field,
)

T = TypeVar("T")
RAIN = SessionKey("local", "rain")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "there.db"


def on(target: Path, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def done() -> T:
        async with aclosing(SqliteStore(target)) as store:
            return await work(store)

    return asyncio.run(done())


def bytes_of(file: Path) -> dict[str, bytes]:
    files = sorted(file.iterdir()) if file.is_dir() else [file]
    return {path.name: path.read_bytes() for path in files}


def own_copy(name: str, tmp_path: Path) -> Path:
    file = tmp_path / name
    if (DATA / name).is_dir():
        shutil.copytree(DATA / name, file)
    else:
        shutil.copy(DATA / name, file)
    return file


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize("name", AGENTS)
def test_every_branch_of_the_agents_sdk_is_read_as_the_sdk_reads_it(command: Command, target: Path, name: str) -> None:
    file, url = DATA / name, f"sqlite:{target}"
    before = bytes_of(file)
    first = command("sessions", "copy", f"openai-agents:{file}", url)
    assert (first.status, first.out, first.err) == (0, f"{len(expected(file))} copied\n", "")
    again = command("sessions", "copy", f"openai-agents:{file}", url, "--json")
    assert [row["state"] for row in again.json["sessions"]] == ["equal"] * len(expected(file))
    assert on(target, lambda store: read_as_agents_sdk(store, file)) == expected(file)
    assert on(target, lambda store: store.verify()) == []
    assert bytes_of(file) == before


@pytest.mark.parametrize("name", SELECTOOLS)
def test_every_memory_of_selectools_is_loaded_as_selectools_loads_it(command: Command, target: Path, name: str) -> None:
    file, url = DATA / name, f"sqlite:{target}"
    before = bytes_of(file)
    first = command("sessions", "copy", f"selectools:{file}", url)
    assert (first.status, first.out, first.err) == (0, "3 copied\n", "")
    loaded = on(target, lambda store: read_as_selectools(store, file))
    assert with_every_field(loaded) == with_every_field(expected(file))
    assert on(target, lambda store: store.verify()) == []
    assert command("sessions", "copy", f"selectools:{file}", url).out == "3 equal\n"
    assert bytes_of(file) == before


def test_branches_share_their_beginning_and_turns_have_their_usage(command: Command, target: Path) -> None:
    command("sessions", "copy", f"openai-agents:{DATA / 'openai_agents_advanced.db'}", f"sqlite:{target}")
    whole = on(target, lambda store: store.whole(RAIN))
    assert whole is not None
    shared = [branch.since for branch in whole.branches]
    assert [(branch.name, branch.parent) for branch in whole.branches] == [
        ("main", ""),
        ("snow", "main"),
        ("hail", "snow"),
    ]
    assert shared == [0, 4, 12]
    assert whole.session.branch == "main"
    assert [(turn.usage.get("prompt_tokens"), turn.usage.get("completion_tokens")) for turn in whole.turns] == [
        *[(14, 6)] * 4,
        (None, None),
        (None, None),
    ]
    assert {turn.record["by"] for turn in whole.turns} == {"openai-agents"}
    assert 1_700_000_000 < whole.session.created <= whole.session.updated


def test_what_was_added_later_continues_the_copy(command: Command, tmp_path: Path, target: Path) -> None:
    file, url = own_copy(AGENTS[0], tmp_path), f"sqlite:{target}"
    command("sessions", "copy", f"openai-agents:{file}", url)
    item = json.dumps({"role": "user", "content": "one more"})
    change(
        file,
        f"INSERT INTO agent_messages (session_id, message_data) VALUES ('rain', '{item}')",
        "UPDATE agent_sessions SET updated_at = CURRENT_TIMESTAMP WHERE session_id = 'rain'",
    )
    assert command("sessions", "copy", f"openai-agents:{file}", url).out == "1 continued, 1 equal\n"
    assert on(target, lambda store: store.latest(RAIN, 1))[0].message.text == "one more"
    # A history that was cut and written anew is another one, although it is longer.
    change(file, "UPDATE agent_messages SET message_data = replace(message_data, 'How', 'Why') WHERE id = 1")
    left = command("sessions", "copy", f"openai-agents:{file}", url)
    assert (left.status, left.out) == (1, "1 differs, 1 equal\n")
    assert command("sessions", "copy", f"openai-agents:{file}", url, "--replace").out == "1 copied, 1 equal\n"


def test_a_window_of_selectools_that_lost_its_first_messages_does_not_overwrite_them(
    command: Command, tmp_path: Path, target: Path
) -> None:
    file, url = own_copy(SELECTOOLS[1], tmp_path), f"sqlite:{target}"
    command("sessions", "copy", f"selectools:{file}", url)
    document = file / "rain.json"
    body = json.loads(document.read_text("utf-8"))
    del body["memory"]["messages"][0]
    document.write_text(json.dumps(body), "utf-8")
    left = command("sessions", "copy", f"selectools:{file}", url)
    assert (left.status, left.out) == (1, "1 differs, 2 equal\n")
    assert "differs: local rain" in left.err


def test_a_database_is_read_while_its_program_writes_to_it(command: Command, tmp_path: Path, target: Path) -> None:
    file = own_copy(AGENTS[0], tmp_path)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('rain', '{\"type\": \"new\"}')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM agent_messages")
        assert command("sessions", "copy", f"openai-agents:{file}", f"sqlite:{target}").out == "2 copied\n"
        writer.execute("ROLLBACK")
    assert on(target, lambda store: store.latest(RAIN, 1))[0].message.extra["responses"]["item"] == {"type": "new"}


def test_messages_that_no_branch_lists_are_kept_on_a_branch_of_their_own(
    command: Command, tmp_path: Path, target: Path
) -> None:
    file = own_copy(AGENTS[1], tmp_path)
    item = json.dumps({"role": "user", "content": "x"})
    change(file, f"INSERT INTO agent_messages (session_id, message_data) VALUES ('rain', '{item}')")
    assert command("sessions", "copy", f"openai-agents:{file}", f"sqlite:{target}").out == "1 copied\n"
    items = on(target, lambda store: store.latest(RAIN, branch="without branch"))
    assert [item.message.text for item in items] == ["x"]
    assert on(target, lambda store: read_as_agents_sdk(store, DATA / AGENTS[1])) == expected(DATA / AGENTS[1])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE agent_messages SET message_data = '{torn' WHERE id = 1", "message 1 is not JSON"),
        ("UPDATE agent_messages SET message_data = '[]' WHERE id = 1", "is not an object"),
        ("UPDATE agent_messages SET message_data = x'00' WHERE id = 1", "is not stored as text"),
        ("UPDATE agent_messages SET message_data = '{\"a\": NaN}' WHERE id = 1", "NaN"),
        ("UPDATE agent_messages SET message_data = CAST(x'ff' AS TEXT) WHERE id = 1", "UTF-8"),
    ],
)
def test_a_session_that_cannot_be_read_is_named_and_the_others_are_copied(
    command: Command, tmp_path: Path, target: Path, damage: str, reason: str
) -> None:
    file = own_copy(AGENTS[0], tmp_path)
    change(file, damage)
    ended = command("sessions", "copy", f"openai-agents:{file}", f"sqlite:{target}")
    assert (ended.status, ended.out) == (1, "1 copied, 1 unreadable\n")
    assert "unreadable: local rain: " in ended.err
    assert reason in ended.err
    again = command("sessions", "copy", f"openai-agents:{file}", f"sqlite:{target}", "--json")
    assert [row["state"] for row in again.json["sessions"]] == ["equal", "unreadable"]


def test_an_id_that_is_no_id_here_is_reported(command: Command, tmp_path: Path, target: Path) -> None:
    file = own_copy(AGENTS[0], tmp_path)
    change(file, "INSERT INTO agent_sessions (session_id) VALUES ('a' || char(27) || '[31m')")
    ended = command("sessions", "copy", f"openai-agents:{file}", f"sqlite:{target}")
    assert (ended.status, ended.out) == (1, "2 copied, 1 unreadable\n")
    assert "\x1b" not in ended.err


def test_documents_of_selectools_that_cannot_be_read_are_named(command: Command, tmp_path: Path, target: Path) -> None:
    file = own_copy(SELECTOOLS[1], tmp_path)
    (file / "torn.json").write_text('{"session_id": "x"')
    body = json.loads((file / "empty.json").read_text())
    body["session_id"], body["memory"]["messages"] = "odd", [{"role": "assistant", "tool_calls": 7}]
    (file / "odd.json").write_text(json.dumps(body))
    ended = command("sessions", "copy", f"selectools:{file}", f"sqlite:{target}")
    assert (ended.status, ended.out) == (1, "3 copied, 2 unreadable\n")
    assert "torn.json: The document is not JSON" in ended.err
    assert "local odd: " in ended.err


def test_sessions_without_a_namespace_go_into_the_one_that_is_named(command: Command, target: Path) -> None:
    file = DATA / SELECTOOLS[1]
    ended = command("sessions", "copy", f"selectools:{file}", f"sqlite:{target}", "--namespace", "bob", "--json")
    assert [(row["namespace"], row["id"]) for row in ended.json["sessions"]] == [("bob", "empty"), ("bob", "rain")]
    same = command("sessions", "copy", f"selectools:{file}", f"sqlite:{target}", "--namespace", "ann", "--replace")
    assert (same.status, same.out) == (1, "2 copied, 1 unreadable\n")
    assert "ann rain: Another session of the source has the same namespace and id." in same.err


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("openai-agents:nowhere.db", "There is no file at 'nowhere.db'."),
        ("openai-agents:", "There is no file at ''."),
        ("openai-agents:text.db", "text.db is not a SQLite database."),
        (f"openai-agents:{DATA / 'selectools.db'}", "is not a database of the OpenAI Agents SDK"),
        (f"selectools:{DATA / 'openai_agents_simple.db'}", "is not a database of selectools"),
        ("selectools:.", "is not a directory of selectools"),
    ],
)
def test_what_is_no_file_of_the_framework_is_refused_before_anything_is_written(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("no database " * 100)
    (tmp_path / "other.json").write_text("{}")
    before = set(tmp_path.iterdir())
    refused = command("sessions", "copy", source, "sqlite:there.db")
    assert refused.status != 0
    assert says in refused.err
    assert set(tmp_path.iterdir()) == before


def test_files_of_a_framework_are_never_written(command: Command) -> None:
    refused = command("sessions", "copy", "configured", f"openai-agents:{DATA / AGENTS[0]}")
    assert refused.status != 0
    assert "can only be read" in refused.err
