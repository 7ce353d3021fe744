"""Tests which entries of a directory the code may read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_kernel.sandbox.jail import visible_paths


def names(root: Path, *hidden: Path, apart: bool = False) -> set[str]:
    found = visible_paths.entries(str(root), [str(path) for path in hidden], apart=apart)
    return {os.path.relpath(entry.path, root) for entry in found}


def fill(root: Path, *files: str) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)
    return root


def test_a_directory_without_anything_private_is_shown_as_one(tmp_path: Path) -> None:
    fill(tmp_path, "a.csv", "sub/b.csv")
    assert names(tmp_path) == {"."}
    assert names(tmp_path, apart=True) == {"a.csv", "sub"}


def test_dot_entries_are_left_out_at_every_depth(tmp_path: Path) -> None:
    fill(tmp_path, "a.csv", ".env", ".git/config", "sub/b.csv", "sub/deep/.key", "sub/deep/c.csv", "clean/d.csv")
    assert names(tmp_path) == {"a.csv", "clean", "sub/b.csv", "sub/deep/c.csv"}


@pytest.mark.parametrize(
    "sidecar", ["nb.agent.json", "nb.agent.json.bak", "nb.agent.conflict.json", "nb.agent/blob", "s/nb.agent.json"]
)
def test_sidecars_are_left_out(tmp_path: Path, sidecar: str) -> None:
    fill(tmp_path, "nb.ipynb", "s/x.csv", sidecar)
    assert names(tmp_path, apart=True) - {"s"} == {"nb.ipynb"} | ({"s/x.csv"} if sidecar.startswith("s/") else set())


def test_hidden_paths_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a.csv", "data/work/x", "data/b.csv")
    assert names(tmp_path, tmp_path / "data" / "work") == {"a.csv", "data/b.csv"}


def test_links_and_sockets_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, "a.csv", "inner/b.csv")
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == {"a.csv", "inner"}


def test_the_home_directory_all_above_it_and_hidden_ones_are_never_shared() -> None:
    assert not visible_paths.is_shareable("/home/me", [], "/home/me")
    assert not visible_paths.is_shareable("/home", [], "/home/me")
    assert not visible_paths.is_shareable("/", [], "/home/me")
    assert not visible_paths.is_shareable("/srv/work/x", ["/srv/work"], "/home/me")
    assert visible_paths.is_shareable("/home/me/project", ["/srv/work"], "/home/me")
    assert visible_paths.is_shareable("/home/melanie", [], "/home/me")


def test_a_directory_too_large_to_look_through_is_shown_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_paths, "MAX_ENTRIES", 3)
    fill(tmp_path, *(f"{name}.csv" for name in "abcdef"))
    assert names(tmp_path) == {"a.csv", "b.csv", "c.csv"}


def test_the_interpreter_is_shown_without_a_home_directory_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(sys, "prefix", "/home/me")
    monkeypatch.setattr(sys, "exec_prefix", "/")
    assert not {"/", "/home", "/home/me"} & set(visible_paths.interpreter())
