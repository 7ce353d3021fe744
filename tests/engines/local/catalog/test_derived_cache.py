"""Tests the cache of prepared model files: a file appears only when it is complete, and the content of its source
determines its name.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.engines.local.catalog.derived_cache import identity, publish


def make_directory(parent: Path, name: str, text: str) -> Path:
    directory = parent / name
    directory.mkdir()
    (directory / "graph.xml").write_text(text)
    return directory


def test_a_preparation_stands_under_its_name_with_all_its_files(tmp_path: Path) -> None:
    publish(make_directory(tmp_path, "building", "first"), tmp_path / "ready")

    assert (tmp_path / "ready" / "graph.xml").read_text() == "first"


def test_who_comes_second_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    publish(make_directory(tmp_path, "one", "first"), tmp_path / "ready")
    publish(make_directory(tmp_path, "two", "second"), tmp_path / "ready")

    assert (tmp_path / "ready" / "graph.xml").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "ready", "two"]


def test_a_file_that_was_replaced_is_another_one(tmp_path: Path) -> None:
    path, other = tmp_path / "model.gguf", tmp_path / "new.gguf"
    path.write_bytes(b"a")
    before = identity(path)
    assert identity(path) == before

    other.write_bytes(b"bc")
    os.replace(other, path)
    assert identity(path) != before
