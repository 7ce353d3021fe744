"""Data on the standard input of ``agent-kernel ask``: when they are used, and the name that they get."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from agent_kernel.cli.terminal.standard_input import PIPE_WAIT_S
from agent_kernel.core.session import SessionKey
from tests.cli.conftest import Command

SCRIPT: list[dict[str, Any]] = [{"text": "The answer is 42.", "loop": True}]
ASK = (sys.executable, "-m", "agent_kernel", "ask", "what is it?", "--json")
CSV = "region,sales\nnorth,12\nsouth,9\n"


def given_files(scripted: Command, ended: subprocess.CompletedProcess[str]) -> list[tuple[str, int]]:
    key = SessionKey("local", json.loads(ended.stdout)["session"])
    return [(file.name, file.size) for file in scripted.on_store(lambda store: store.files(key))]


def ask(stdin: IO[Any] | int | None = None, *options: str, data: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command with ``data`` in a pipe on its stdin, or with ``stdin``."""
    if data is not None:
        return subprocess.run((*ASK, *options), input=data, capture_output=True, text=True, check=True, timeout=60)
    return subprocess.run((*ASK, *options), stdin=stdin, capture_output=True, text=True, check=True, timeout=60)


def test_piped_data_go_with_the_question(scripted: Command) -> None:
    ended = ask(data=CSV)
    assert (given_files(scripted, ended), ended.stderr) == ([("stdin.csv", len(CSV))], "")


def test_a_redirected_file_goes_with_the_question(scripted: Command, tmp_path: Path) -> None:
    (tmp_path / "sales").write_text(CSV)
    with (tmp_path / "sales").open() as source:
        assert given_files(scripted, ask(source)) == [("stdin.csv", len(CSV))]


def test_a_file_that_another_program_is_reading_is_left_to_it(scripted: Command, tmp_path: Path) -> None:
    (tmp_path / "questions").write_text("first\nsecond\n")
    with (tmp_path / "questions").open("rb", buffering=0) as source:
        source.seek(6)
        assert given_files(scripted, ask(source)) == []
        assert source.tell() == 6


@pytest.mark.parametrize("data", [None, ""])
def test_standard_input_without_data_is_no_file(scripted: Command, data: str | None) -> None:
    ended = ask(subprocess.DEVNULL, data=data)
    assert (given_files(scripted, ended), ended.stderr) == ([], "")


def test_a_pipe_that_stays_open_without_data_does_not_block_the_command(scripted: Command) -> None:
    with subprocess.Popen(("sleep", "60"), stdout=subprocess.PIPE) as idle:
        began = time.monotonic()
        ended = ask(idle.stdout)
        assert time.monotonic() - began < PIPE_WAIT_S + 30
        idle.kill()
    assert given_files(scripted, ended) == []
    assert "gave no data in 3 seconds" in ended.stderr
    assert "add -f -; to leave it out, add < /dev/null" in ended.stderr


def test_a_file_of_the_command_is_in_addition_to_piped_data(scripted: Command, tmp_path: Path) -> None:
    (tmp_path / "teas.csv").write_text("a\n1\n")
    ended = ask(None, "-f", str(tmp_path / "teas.csv"), data="Text.")
    assert given_files(scripted, ended) == [("teas.csv", 4), ("stdin.txt", 5)]


def test_more_piped_data_than_a_file_may_have_are_refused(scripted: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KERNEL_UPLOAD_MB", "1")
    with subprocess.Popen(("yes",), stdout=subprocess.PIPE) as endless:
        ended = subprocess.run(ASK, stdin=endless.stdout, capture_output=True, text=True, check=False, timeout=60)
        endless.kill()
    assert (ended.returncode, ended.stderr) == (1, "agent-kernel: A file can have at most 1 MiB on this server.\n")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (CSV, "stdin.csv"),
        ("a;b\n1,5;2\n", "stdin.csv"),
        ('name,text\nAnn,"two\nlines, in one cell"\nBob,none\n', "stdin.csv"),
        ("a\tb\n1\t2\n", "stdin.tsv"),
        ('{"a": 1}', "stdin.json"),
        ('\n[{"a": 1},\n {"a": 2}]', "stdin.json"),
        ('{"a": 1}\n{"a": 2}\n', "stdin.jsonl"),
        ("Dear reader, hello.\nI am fine, thanks.\n", "stdin.txt"),
        ("[INFO] started\n[INFO] ended\n", "stdin.txt"),
        ("one line, no table", "stdin.txt"),
    ],
)
def test_the_name_of_piped_data_has_the_extension_of_its_format(scripted: Command, data: str, name: str) -> None:
    assert given_files(scripted, ask(data=data))[0][0] == name
