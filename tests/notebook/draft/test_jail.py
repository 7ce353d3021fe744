"""Tests which files of the notebook's directory a draft that exists already cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.notebook.draft.jail import has_newer_files, readable_notebook_paths


@pytest.fixture(params=["a.txt", ".ipynb_checkpoints"], ids=["without private entries", "with a private entry"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / request.param).mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path / "notebooks"


def test_a_draft_cannot_read_a_newer_file_only_beside_a_private_entry(folder: Path) -> None:
    readable = readable_notebook_paths()
    assert not has_newer_files(readable)
    (folder / "data.csv").write_text("a")
    assert has_newer_files(readable) == (folder / ".ipynb_checkpoints").exists()
    assert not has_newer_files(readable_notebook_paths())


def test_a_new_private_entry_hides_no_file_from_a_draft(folder: Path) -> None:
    (folder / "data.csv").write_text("a")
    readable = readable_notebook_paths()
    (folder / ".git").mkdir()
    (folder / "a.agent.json").write_text("{}")
    assert not has_newer_files(readable)
