"""Tests ``agent-kernel sessions`` as users and programs call it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent_kernel.cli import export_import
from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Owner, SessionKey, SessionUpdate, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.conftest import Command

KEY = SessionKey("local", "rain")
CALL = ToolCall("c", "python", {"code": "df.sum()\nprint(1)"})


async def fill_store(store: SqliteStore) -> None:
    await store.create(KEY, "Rain in \x1b[31mSeattle")
    await store.describe(KEY, SessionUpdate(tags=("weather",)))
    said = [user("how much rain falls?"), assistant("", [CALL]), tool_result(CALL, "2", "success"), assistant("2 mm")]
    await store.add_turn(Turn("t1", KEY), said)
    await store.add_turn(Turn("t2", KEY), [user("thanks"), assistant("gladly")])
    await store.create(SessionKey("ann", "hers"), "of another namespace")


@pytest.fixture
def sessions(command: Command) -> Command:
    command.on_store(fill_store)
    return command


def test_alone_it_lists(sessions: Command) -> None:
    listed = sessions("sessions")
    assert (listed.status, listed.out) == (0, sessions("sessions", "list").out)
    assert listed.out.splitlines()[1].split()[0] == "rain"
    assert "weather" in listed.out
    row = sessions("sessions", "list", "--json").json[0]
    assert (row["id"], row["turns"], row["tags"], row["title"]) == ("rain", 2, ["weather"], "Rain in \x1b[31mSeattle")


def test_a_title_can_not_speak_to_the_terminal(sessions: Command) -> None:
    for shown in (sessions("sessions"), sessions("sessions", "show", "rain"), sessions("sessions", "search", "rain")):
        assert "\x1b" not in shown.out
        assert "Seattle" in shown.out


def test_a_namespace_is_named_before_or_behind_the_word(sessions: Command) -> None:
    first = sessions("sessions", "--namespace", "ann", "list", "--json").json
    assert first == sessions("sessions", "list", "--namespace", "ann", "--json").json
    assert [row["id"] for row in first] == ["hers"]
    nobody = sessions("sessions", "--namespace", "nobody")
    assert (nobody.status, nobody.out, nobody.err) == (
        0,
        "",
        "No conversations are stored in the namespace nobody yet.\n",
    )


def test_an_empty_store_is_described_without_the_name_of_the_default_namespace(command: Command) -> None:
    assert command("sessions").err == "No conversations are stored yet.\n"


@pytest.mark.parametrize("name", ["model", "config", "mcp", "skills", "token"])
def test_a_command_without_its_subcommand_lists_the_subcommands(command: Command, name: str) -> None:
    ended = command(name)
    assert (ended.status, ended.out) == (2, "")
    assert "-h, --help" in ended.err
    assert "list " in ended.err or "show " in ended.err


def test_a_conversation_is_shown_with_its_calls(sessions: Command) -> None:
    shown = sessions("sessions", "show", "rain").out
    assert "\n2 turns, used" in shown
    for text in ("how much rain falls?", "[calls python]", "    df.sum()", "2 mm", "gladly"):
        assert text in shown
    assert "thanks" not in sessions("sessions", "show", "rain", "--limit", "1").out
    whole = sessions("sessions", "show", "rain", "--json").json
    assert (len(whole["items"]), [turn["id"] for turn in whole["turns"]]) == (6, ["t1", "t2"])


def test_words_are_found_and_finding_nothing_is_1(sessions: Command) -> None:
    found = sessions("sessions", "search", "RAIN", "--json")
    assert (found.status, found.json[0]["id"], found.json[0]["snippets"][0]["role"]) == (0, "rain", "user")
    assert sessions("sessions", "search", "falls", "--role", "assistant").status == 1
    assert sessions("sessions", "search", "falls", "--since", "1h").status == 0
    refused = sessions("sessions", "search", "falls", "--since", "yesterday")
    assert (refused.status, "--since must be a time such as 30m" in refused.err) == (1, True)


@pytest.mark.parametrize("format", ["agent-kernel", "openai", "mistralrs"])
def test_what_is_exported_can_be_imported(sessions: Command, tmp_path: Path, format: str) -> None:
    file = tmp_path / "out" / "rain.json"
    file.parent.mkdir()
    assert sessions("sessions", "export", "rain", "--format", format, "-o", str(file)).out == f"{file}\n"
    again = sessions("sessions", "export", "rain", "--format", format, "-o", str(file))
    assert (again.status, "exists already" in again.err) == (1, True)
    told = sessions("sessions", "import", str(file), "--dry-run", "--json").json
    assert (told["session"], told["format"], told["messages"]) == (None, format, 6)
    assert len(sessions("sessions", "--json").json) == 1
    assert sessions("sessions", "import", str(file), "--id", "copy").status == 0
    whole = sessions("sessions", "show", "copy", "--json").json
    assert [item["message"]["role"] for item in whole["items"]][:3] == ["user", "assistant", "tool"]
    assert sessions("sessions", "import", str(file), "--id", "copy").status == 1


def test_the_suffix_of_the_file_chooses_the_format_of_an_export(sessions: Command, tmp_path: Path) -> None:
    for suffix, begin in ((".md", "# "), (".ipynb", "{"), (".jsonl", "{")):
        file = tmp_path / f"rain{suffix}"
        assert sessions("sessions", "export", "rain", "-o", str(file)).status == 0
        assert file.read_text("utf-8").startswith(begin)
    assert "cells" in json.loads((tmp_path / "rain.ipynb").read_text("utf-8"))
    assert sessions("sessions", "export", "rain", "-o", str(tmp_path / "x.md"), "--format", "openai").status == 0
    assert json.loads((tmp_path / "x.md").read_text("utf-8"))["messages"]
    refused = sessions("sessions", "export", "rain", "-o", str(tmp_path / "rain.html"))
    assert (refused.status, "No format has the suffix .html" in refused.err) == (1, True)
    assert not (tmp_path / "rain.html").exists()


def test_a_session_of_a_wrong_clock_does_not_hide_the_others(sessions: Command) -> None:
    async def made() -> None:
        store = SqliteStore(sessions.data / "sessions.db", clock=lambda: 1e13)
        await store.create(SessionKey("local", "far"))
        await store.aclose()

    asyncio.run(made())
    listed = sessions("sessions")
    assert (listed.status, "far" in listed.out, "rain" in listed.out) == (0, True, True)
    assert sessions("sessions", "stats").status == 0


def test_an_unknown_branch_is_not_shown_as_an_empty_one(sessions: Command) -> None:
    shown = sessions("sessions", "show", "rain", "--branch", "nope")
    assert (shown.status, shown.out, shown.err) == (1, "", "agent-kernel: There is no branch 'nope'.\n")


@pytest.mark.parametrize("command_line", [("sessions", "import"), ("replay",)])
def test_a_directory_or_an_endless_file_is_no_document(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: tuple[str, ...]
) -> None:
    monkeypatch.setattr(export_import, "MAX_BYTES", 1_000)
    directory = command(*command_line, str(tmp_path))
    assert (directory.status, directory.err) == (1, f"agent-kernel: {tmp_path} cannot be read: Is a directory.\n")
    endless = command(*command_line, "/dev/zero")
    reason = "/dev/zero is too large: a document can have at most 1000 bytes."
    assert (endless.status, endless.err) == (1, f"agent-kernel: {reason}\n")


def test_a_negative_number_is_refused_by_its_name(sessions: Command) -> None:
    assert "The limit must be 0 or more." in sessions("sessions", "list", "--limit", "-1").err
    assert "The limit must be 0 or more." in sessions("sessions", "search", "rain", "--limit", "-1").err
    assert "The number of turns must be 0 or more." in sessions("sessions", "fork", "rain", "--turns", "-1").err


def test_large_media_come_back(command: Command, tmp_path: Path) -> None:
    picture = Media.of("image/png", os.urandom(300 * 1024))

    async def made(store: SqliteStore) -> None:
        await store.add_turn(Turn("t", KEY), [user("look", [picture]), assistant("seen")])

    async def stored(store: SqliteStore) -> bytes | None:
        return await store.blob(SessionKey("local", "copy"), picture.hash)

    command.on_store(made)
    file = tmp_path / "rain.json"
    assert command("sessions", "export", "rain", "-o", str(file)).status == 0
    assert command("sessions", "import", str(file), "--id", "copy").status == 0
    assert command.on_store(stored) == picture.data


def test_a_document_that_makes_no_sense_is_refused_in_one_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    for file in (tmp_path / "x.json", tmp_path / "missing.json", tmp_path):
        refused = command("sessions", "import", str(file))
        assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)


def test_a_fork_has_the_first_turns(sessions: Command) -> None:
    new = sessions("sessions", "fork", "rain", "--turns", "1").out.strip()
    assert [turn["id"] for turn in sessions("sessions", "show", new, "--json").json["turns"]] == ["t1"]
    assert sessions("sessions", "fork", "rain", new).status == 1
    assert sessions("sessions", "fork", "nobody").status == 1


def test_deleting_needs_a_yes(sessions: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = sessions("sessions", "delete", "rain")
    assert (refused.status, "Add --yes" in refused.err) == (1, True)
    assert len(sessions("sessions", "--json").json) == 1
    gone = sessions("sessions", "delete", "rain", "unknown", "--yes", "--json").json
    assert gone == [{"id": "rain", "deleted": True}, {"id": "unknown", "deleted": False}]
    assert sessions("sessions", "--json").json == []


def test_a_session_that_does_not_exist_is_named_before_any_question(sessions: Command) -> None:
    refused = sessions("sessions", "delete", "rain", "nope", "neither")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err == "agent-kernel: There is no session 'nope', 'neither'. See: agent-kernel sessions list\n"
    assert len(sessions("sessions", "--json").json) == 1


def test_faults_are_told_mended_and_then_gone(sessions: Command) -> None:
    assert sessions("sessions", "verify").status == 0
    with closing(sqlite3.connect(sessions.data / "sessions.db")) as connection, connection:
        connection.execute("DELETE FROM items WHERE seq = 3")
    found = sessions("sessions", "verify", "--json")
    assert (found.status, {row["kind"] for row in found.json}) == (1, {"no_result", "bytes"} & {"no_result"})
    mended = sessions("sessions", "repair")
    assert (mended.status, "set aside" in mended.out) == (0, True)
    assert sessions("sessions", "verify").err == "The store has no faults.\n"


def test_statistics_and_a_vacuum(sessions: Command) -> None:
    assert sessions("sessions", "stats", "--json").json["items"] == 6
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in sessions("sessions", "stats").out.splitlines())
    assert (shown["conversations"], shown["turns"], shown["messages"]) == ("2", "2", "6")
    assert shown["text of the messages"].endswith(("B", "KiB", "MiB"))
    assert not [name for name in shown if "_" in name or name in ("items", "bindings")]
    assert sessions("sessions", "stats", "--namespace", "ann", "--json").json["items"] == 0
    assert sessions("sessions", "vacuum", "--json").json["freed_bytes"] >= 0


def test_expiry_can_be_tried_before(sessions: Command) -> None:
    assert sessions("sessions", "expire").status == 1
    would = sessions("sessions", "expire", "--max-sessions", "0", "--ttl", "1ms", "--dry-run", "--json").json
    assert [(row["namespace"], row["id"], row["why"]) for row in would] == [
        ("local", "rain", "ttl"),
        ("ann", "hers", "ttl"),
    ]
    assert len(sessions("sessions", "--json").json) == 1
    gone = sessions("sessions", "expire", "--ttl", "1ms", "--namespace", "local", "--yes", "--json").json
    assert [row["id"] for row in gone] == ["rain"]
    assert len(sessions("sessions", "--namespace", "ann", "--json").json) == 1
    assert sessions("sessions", "expire", "--ttl", "30d").err == "No session exceeds the limits.\n"


def test_commands_work_while_a_server_has_the_file_open_and_a_turn_runs(sessions: Command) -> None:
    async def serving(store: SqliteStore) -> None:
        owner = Owner.here()
        turn = await store.open_turn(Turn("t3", KEY), owner)
        await store.append(turn, owner, [user("a long one")], 6)

    sessions.on_store(serving)
    assert "a long one" in sessions("sessions", "show", "rain").out
    assert sessions("sessions", "verify").status == 0
    busy = sessions("sessions", "delete", "rain", "--yes")
    assert (busy.status, "running" in busy.err) == (1, True)


def test_a_store_in_memory_has_nothing_to_look_after(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KERNEL_STORE", "memory")
    refused = command("sessions", "list")
    assert (refused.status, "exists only in the memory of a server" in refused.err) == (1, True)


def test_a_reader_that_leaves_early_gets_no_traceback(sessions: Command) -> None:
    program = f"{sys.executable} -m agent_kernel sessions show rain --json | head -c 1"
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.stdout, ended.stderr) == ("{", "")
