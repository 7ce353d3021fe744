"""Files below a directory that other programs write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_kernel.core import safe_path
from agent_kernel.core.errors import InvalidRequest


@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_a_file_is_created_neither_through_a_link_nor_in_its_place(tmp_path: Path, target: str) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    (tmp_path / "victim").write_text("safe")
    (workdir / "data.csv").symlink_to(tmp_path / target)
    with pytest.raises(FileExistsError):
        safe_path.create_file(workdir, "data.csv")
    assert (tmp_path / "victim").read_text() == "safe"
    assert not (tmp_path / "nothing").exists()
    with os.fdopen(safe_path.create_file(workdir, "new.csv"), "w") as file:
        file.write("new")
    assert (workdir / "new.csv").read_text() == "new"


@pytest.mark.parametrize("name", ["", ".", "..", "a/../../b", "/a", "a\0"])
def test_a_path_that_is_not_below_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        safe_path.relative_path(name)
