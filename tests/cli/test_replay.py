"""Tests ``agent-kernel replay`` with documents as they are stored beside a notebook."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export
from agent_kernel.sessions.store.memory import MemoryStore
from tests.cli.conftest import Command

KEY = SessionKey("local", "s1")


def python(number: int, code: str, output: str, answer: str, prompt: str) -> list[Message]:
    call = ToolCall(f"c{number}", "python", {"code": code})
    return [user(prompt), assistant("", [call]), tool_result(call, output, "success"), assistant(answer)]


def document(path: Path, *turns: list[Message], where: str = "sandbox", cell: str = "") -> Path:
    async def write() -> bytes:
        store = MemoryStore()
        for number, said in enumerate(turns, 1):
            await store.add_turn(Turn(f"t{number}", KEY, where=where, cell=cell, model="m"), said)
        whole = await read_snapshot(store, KEY)
        await store.aclose()
        assert whole is not None
        return export(whole).document

    path.write_bytes(asyncio.run(write()))
    return path


def script(path: Path, monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, Any]) -> None:
    path.write_text(json.dumps(rounds))
    monkeypatch.setenv("AGENT_KERNEL_ENGINE", "scripted")
    monkeypatch.setenv("AGENT_KERNEL_SCRIPT", str(path))


FIRST = python(1, "x = 20\nprint(x + 1)", "21", "It is 21.", "add one")
SECOND = python(2, "print(x * 1.5)", "30.0", "That makes 30, or 7%.", "half more")


def test_without_live_parts_it_says_what_the_document_says(command: Command, tmp_path: Path) -> None:
    file = document(tmp_path / "work.agent.json", FIRST, SECOND)
    ended = command("replay", str(file))
    assert ended.status == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == ["TURN", "1", "2"]
    assert "not computed: 7%" in ended.out
    assert ended.out.count("not run again") == 2
    assert "holds" not in ended.out
    assert "--live runs its code again" in ended.err
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "work.ipynb")
    assert command("replay", str(tmp_path / "work.ipynb"), "--turn", "2", "--json").json["turns"][0]["open"] == ["7%"]


def test_the_model_is_asked_again_with_recorded_results(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = document(tmp_path / "work.agent.json", FIRST, SECOND)
    call = {"name": "python", "arguments": {"code": "x = 20\nprint(x + 1) "}}
    script(
        tmp_path / "script.json", monkeypatch,
        {"when": "add one", "calls": [call]},
        {"when": "add one", "text": "The result: 21."},
        {"when": "half more", "text": "That makes 31."},
    )  # fmt: skip
    ended = command("replay", str(file), "--verify", "--json", "--data-dir", str(tmp_path / "data"))
    first, second = ended.json["turns"]
    assert (first["result"], first["failed"], first["answer"]) == ("text drifted", False, "The result: 21.")
    assert (second["result"], second["numbers"], second["instead"]) == ("numbers changed", ["30", "7%"], ["31"])
    assert ended.status == 1
    assert "turn 2 of 2: half more" in ended.err


def test_a_drift_of_words_alone_is_no_failure(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = document(tmp_path / "work.agent.json", FIRST)
    call = {"name": "python", "arguments": {"code": "something else"}}
    script(tmp_path / "script.json", monkeypatch, {"calls": [call]}, {"text": "Well, 21."})
    ended = command("replay", str(file), "--verify", "--data-dir", str(tmp_path / "data"))
    assert "tool calls differ" in ended.out
    assert ended.status == 0


def test_recorded_code_runs_again_without_a_model(command: Command, tmp_path: Path) -> None:
    """Variables go from turn to turn; another output than then is a failure where the answer lived from it."""
    changed = python(3, "print(x + 2)", "23", "It is 23.", "add two")
    missing = python(4, "print(open('sales.csv').read())", "7", "It is 7.", "read it")
    file = document(tmp_path / "work.agent.json", FIRST, SECOND, changed, missing)
    ended = command("replay", str(file), "--live", "--json", "--data-dir", str(tmp_path / "data"))
    turns = ended.json["turns"]
    assert [turn["result"] for turn in turns] == ["holds", "holds", "numbers changed", "could not run"], turns
    assert (turns[2]["numbers"], turns[3]["files"]) == (["23"], ["sales.csv"])
    assert ended.status == 1
    one = command("replay", str(file), "--live", "--turn", "t2", "--json", "--data-dir", str(tmp_path / "data"))
    assert [turn["result"] for turn in one.json["turns"]] == ["holds"]
    assert one.status == 0
    assert not list((tmp_path / "data" / "work").rglob("*.py"))


def test_a_turn_that_ran_in_the_kernel_gets_the_cells_above_it(command: Command, tmp_path: Path) -> None:
    said = python(1, "print(len(rows))", "3", "There are 3 rows.", "count")
    file = document(tmp_path / "work.agent.json", said, where="live", cell="ask")
    arguments = ("replay", str(file), "--live", "--json", "--data-dir", str(tmp_path / "data"))
    assert "NameError" in command(*arguments).json["turns"][0]["why"]
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("%load_ext agent_kernel\nrows = [1, 2, 3]"),
            nbformat.v4.new_code_cell("%%agent\nother"),
            nbformat.v4.new_code_cell("%%agent\ncount", id="ask"),
            nbformat.v4.new_code_cell("1 / 0"),
        ]
    )
    nbformat.write(notebook, tmp_path / "work.ipynb")
    assert command(*arguments).json["turns"][0]["result"] == "holds"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"agent_kernel": {"format": 99}}'])
def test_what_is_no_conversation_of_ours_is_a_line(command: Command, tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "bad.agent.json"
    path.write_bytes(body)
    ended = command("replay", str(path))
    assert ended.status == 1
    assert len(ended.err.splitlines()) == 1


def test_a_turn_that_is_not_there_and_a_file_that_is_not_there_are_named(command: Command, tmp_path: Path) -> None:
    file = document(tmp_path / "work.agent.json", FIRST)
    assert "there are 1 to 1" in command("replay", str(file), "--turn", "9").err
    assert "cannot be read" in command("replay", str(tmp_path / "none.agent.json")).err
