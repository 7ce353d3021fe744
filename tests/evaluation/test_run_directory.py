"""Tests the temporary directory of an evaluation run."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from agent_kernel.evaluation.result_file import PREFIX, YOUNG_S, run_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(directory: Path) -> None:
    before = time.time() - 2 * YOUNG_S
    os.utime(directory, (before, before))


def test_a_directory_is_gone_after_its_run(temporary: Path) -> None:
    with run_directory() as directory:
        assert directory.parent == temporary
    assert not list(temporary.iterdir())


def test_a_run_removes_the_directory_of_a_killed_run_and_no_other(temporary: Path) -> None:
    killed, other, new = (temporary / name for name in (f"{PREFIX}killed", "other", f"{PREFIX}new"))
    for directory in (killed, other, new):
        (directory / "notebooks").mkdir(parents=True)
    make_old(killed)
    make_old(other)
    (temporary / f"{PREFIX}link").symlink_to(other)
    with run_directory() as running:
        make_old(running)
        with run_directory() as second:
            assert {running, second, other, new} < set(temporary.iterdir())
            assert not killed.exists()
    assert (other / "notebooks").is_dir()
