"""Files below a directory that other programs write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_kernel.core import safe_path
from agent_kernel.core.errors import InvalidRequest


def test_a_made_file_replaces_a_link_and_is_not_written_through_it(tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    (tmp_path / "victim").write_text("safe")
    (workdir / "data.csv").symlink_to(tmp_path / "victim")
    with os.fdopen(safe_path.create_file(workdir, "data.csv"), "w") as file:
        file.write("new")
    assert (tmp_path / "victim").read_text() == "safe"
    assert (workdir / "data.csv").read_text() == "new"


@pytest.mark.parametrize("name", ["", ".", "..", "a/../../b", "/a", "a\0"])
def test_a_path_that_is_not_below_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        safe_path.relative_path(name)
