"""Tests the temporary directories of processes, with processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_kernel.core.process_directory import LOCK, YOUNG_S, ProcessDirectory

PREFIX = "agent-kernel-test-"
OWNER = f"""
import time
from agent_kernel.core.process_directory import ProcessDirectory
directory = ProcessDirectory({PREFIX!r})
(directory.path / "sessions").mkdir()
(directory.path / "sessions" / "one.json").write_text("private")
print(directory.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


Owner = Callable[[], tuple["subprocess.Popen[str]", Path]]


@pytest.fixture
def start_owner() -> Iterator[Owner]:
    """A function that starts a process with a directory that is old, and returns both."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        make_old(directory)
        return process, directory

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def make_old(directory: Path) -> None:
    before = time.time() - 2 * YOUNG_S
    os.utime(directory, (before, before))


def test_a_directory_is_private_and_is_gone_after_its_use(temporary: Path) -> None:
    with ProcessDirectory(PREFIX) as directory:
        assert directory.parent == temporary
        assert directory.stat().st_mode & 0o077 == 0
    assert not list(temporary.iterdir())


def test_the_directory_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(start_owner: Owner) -> None:
    (killed, left), (_, used) = start_owner(), start_owner()
    killed.kill()
    killed.wait()
    assert (left / "sessions" / "one.json").exists()
    with ProcessDirectory(PREFIX):
        assert not left.exists()
        assert (used / "sessions" / "one.json").exists()


def test_a_directory_without_the_lock_of_a_process_is_left_alone(
    temporary: Path, start_owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, left = start_owner()
    process.kill()
    process.wait()
    new, other = temporary / f"{PREFIX}new", temporary / "elsewhere"
    left.rename(other)  # only its prefix differs
    (temporary / f"{PREFIX}link").symlink_to(other)
    mine = temporary / f"{PREFIX}mine"
    mine.mkdir()
    make_old(mine)
    new.mkdir()
    (new / LOCK).touch()
    ProcessDirectory(PREFIX).close()
    assert (other / "sessions" / "one.json").exists()
    assert mine.is_dir(), "a directory that a person made has no lock"
    assert new.is_dir(), "its process may be about to take the lock"
    make_old(new)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    ProcessDirectory(PREFIX).close()
    assert new.is_dir(), "it belongs to another user"
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    ProcessDirectory(PREFIX).close()
    assert not new.exists()
