"""Tests which entries of a directory the code may read."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings of directories that changed just now are kept too."""
    monkeypatch.setattr(visible_paths, "SETTLED_NS", 0)


def read_directories(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives each directory that is read from now on."""
    read: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> Any:
        read.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    return read


@pytest.mark.usefixtures("settled")
def test_a_directory_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.csv", ".env", "sub/deep/b.csv", "other/c.csv")
    before = names(tmp_path)
    read = read_directories(monkeypatch)
    assert names(tmp_path) == before
    assert visible_paths.private_below(str(tmp_path)) == [str(tmp_path / ".env")]
    assert read == []
    (tmp_path / "sub/deep/.key").write_text("secret")
    assert names(tmp_path) == {"a.csv", "other", "sub/deep/b.csv"}
    assert read == [str(tmp_path / "sub/deep")]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", ["replaced by a link", "moved", "its times set back"])
def test_each_change_of_a_directory_is_noticed(tmp_path: Path, change: str) -> None:
    fill(tmp_path, ".env", "sub/a.csv", "sub/b.csv")
    assert names(tmp_path) == {"sub"}
    sub = tmp_path / "sub"
    times = sub.stat()
    if change == "moved":
        sub.rename(tmp_path / "away")
        fill(tmp_path, "sub/.key")
        assert names(tmp_path) == {"away"}
        return
    (sub / "a.csv").unlink()
    (sub / ".a.csv" if change == "its times set back" else sub / "a.csv").symlink_to("/etc/passwd")
    if change == "its times set back":
        os.utime(sub, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert names(tmp_path) == {"sub/b.csv"}
    else:
        assert names(tmp_path) == {"sub"}, "a link shows nothing by itself"


def test_a_directory_that_changed_just_now_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.csv")
    names(tmp_path)
    read = read_directories(monkeypatch)
    names(tmp_path)
    assert read == [str(tmp_path)], "a further change in the same tick of the clock would not be seen"


def test_a_look_examines_each_directory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.csv", "sub/b.csv")
    with visible_paths.examining_once():
        names(tmp_path)
        read = read_directories(monkeypatch)
        fill(tmp_path, "sub/.key")
        assert names(tmp_path) == {"."}
        assert read == []
    assert names(tmp_path) == {"a.csv", "sub/b.csv"}


NAMES = st.sampled_from(["a", "b", "c", ".d", "e.agent", "f"])


@given(st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from("fdl")), max_size=12), st.data())
def test_what_is_visible_is_every_file_without_a_private_or_hidden_entry_on_its_way(
    made: list[tuple[list[str], str]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for words, kind in made:
            path = root.joinpath(*words)
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                if kind == "f":
                    path.touch(exist_ok=False)
                elif kind == "d":
                    path.mkdir()
                else:
                    path.symlink_to("/etc/passwd")
        every = sorted(path for path in root.rglob("*"))
        hidden = [path for path in every if not path.is_symlink() and data.draw(st.integers(0, 9)) == 0]
        shown = [Path(entry.path) for entry in visible_paths.entries(directory, [str(path) for path in hidden])]
        for path in every:
            way = [path, *(parent for parent in path.parents if parent.is_relative_to(root) and parent != root)]
            may = not any(visible_paths.is_private(part.name) or part in hidden for part in way)
            is_shown = any(path == part or part in path.parents for part in shown)
            if path.is_symlink():
                assert may or not is_shown
            elif path.is_file():
                assert is_shown == may
            else:
                assert may or not is_shown
