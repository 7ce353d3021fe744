"""Tests which files of a work directory are reported after a run, in which order, and which never are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent_kernel.core import safe_path
from agent_kernel.core.files import ProducedFile, RequestedFile
from agent_kernel.tools.code import workdir_changes as module
from agent_kernel.tools.code.workdir_changes import (
    SurfacedFiles,
    WorkdirSnapshot,
    describe_requested_files,
    requested_outputs,
)


async def run_and_find(
    workdir: Path,
    run: Callable[[], object],
    declared: Sequence[RequestedFile] = (),
    wanted: Sequence[RequestedFile] = (),
    *,
    unasked: bool = True,
) -> SurfacedFiles:
    before = await WorkdirSnapshot.take(workdir, wanted, unasked=unasked)
    run()
    return await before.find_outputs(declared)


def write(workdir: Path, *names: str) -> None:
    for name in names:
        path = workdir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(found: SurfacedFiles) -> list[str]:
    return [file.name for file in found.files]


def read(file: ProducedFile) -> str:
    assert isinstance(file.data, Path)
    assert file.root is not None
    descriptor = safe_path.open_file(file.root, str(file.data.relative_to(file.root)))
    with os.fdopen(descriptor) as opened:
        return opened.read()


async def test_new_and_changed_files_come_by_name_and_old_ones_do_not(tmp_path: Path) -> None:
    write(tmp_path, "old.txt", "report.txt")

    def run() -> None:
        write(tmp_path, "z.csv", "a/b.txt")
        (tmp_path / "report.txt").write_text("after")

    found = await run_and_find(tmp_path, run)
    assert names(found) == ["a/b.txt", "report.txt", "z.csv"]
    assert [read(file) for file in found.files] == ["a/b.txt", "after", "z.csv"]
    assert not any(file.error for file in found.files)


async def test_a_directory_that_does_not_exist_yet_has_no_files_before(tmp_path: Path) -> None:
    found = await run_and_find(tmp_path / "later", lambda: write(tmp_path / "later", "one.txt"))
    assert names(found) == ["one.txt"]


async def test_files_of_programs_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    unseen = ["skills/a.md", "__pycache__/a.txt", ".hidden/a.txt", ".env", "tmp/a.txt", "node_modules/a.js", "a.pyc"]
    found = await run_and_find(tmp_path, lambda: write(tmp_path, "keep.txt", "nested/target/a.txt", *unseen))
    assert names(found) == ["keep.txt"]


async def test_declared_files_come_first_and_once(tmp_path: Path) -> None:
    declared = [RequestedFile("z.txt"), RequestedFile("answer.txt", "md")]
    found = await run_and_find(tmp_path, lambda: write(tmp_path, "answer.txt", "a.txt", "z.txt"), declared)
    assert names(found) == ["z.txt", "answer.txt", "a.txt"]
    assert [file.format for file in found.files] == ["txt", "md", "txt"]


async def test_a_declared_file_is_surfaced_even_if_nothing_changed_it(tmp_path: Path) -> None:
    write(tmp_path, "old.txt")
    found = await run_and_find(tmp_path, lambda: None, [RequestedFile("./old.txt")])
    assert names(found) == ["old.txt"]


@pytest.mark.parametrize("name", ["missing.html", "../secret", "/etc/passwd", "folder", "a\0b", ".", "pipe", "out"])
async def test_a_declared_file_that_is_not_one_below_the_directory_is_not_produced(tmp_path: Path, name: str) -> None:
    workdir = tmp_path / "work"
    (workdir / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    os.mkfifo(workdir / "pipe")
    (workdir / "out").symlink_to(tmp_path / "secret")
    found = await run_and_find(workdir, lambda: None, [RequestedFile(name)])
    assert [(file.name, file.error, file.data) for file in found.files] == [(name, "not_produced", b"")]


async def test_a_declared_link_within_the_directory_is_followed_and_one_found_is_not(tmp_path: Path) -> None:
    def run() -> None:
        write(tmp_path, "real.txt")
        (tmp_path / "link.txt").symlink_to("real.txt")
        (tmp_path / "other.txt").symlink_to("real.txt")

    found = await run_and_find(tmp_path, run, [RequestedFile("link.txt")])
    assert names(found) == ["link.txt", "real.txt"]
    assert read(found.files[0]) == "real.txt"


async def test_what_the_request_wants_comes_when_it_changed_and_is_no_error_while_it_is_missing(tmp_path: Path) -> None:
    wanted = [RequestedFile("tmp/deck.pptx", "PPTX"), RequestedFile("later.md")]
    first = await run_and_find(tmp_path, lambda: write(tmp_path, "tmp/deck.pptx"), wanted=wanted)
    assert [(file.name, file.format) for file in first.files] == [("tmp/deck.pptx", "pptx")]
    again = await run_and_find(tmp_path, lambda: write(tmp_path, "later.md"), wanted=wanted)
    assert names(again) == ["later.md"]


async def test_without_the_setting_only_what_somebody_named_is_surfaced(tmp_path: Path) -> None:
    found = await run_and_find(
        tmp_path,
        lambda: write(tmp_path, "a.txt", "b.txt", "c.txt"),
        [RequestedFile("b.txt")],
        [RequestedFile("c.txt")],
        unasked=False,
    )
    assert names(found) == ["b.txt", "c.txt"]


async def test_of_many_new_files_the_first_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    found = await run_and_find(tmp_path, lambda: write(tmp_path, *(f"{number:03}.txt" for number in range(70))))
    assert names(found) == [f"{number:03}.txt" for number in range(64)]
    assert "6 more" in found.note


async def test_a_directory_with_too_many_entries_surfaces_only_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WALKED", 100)
    found = await run_and_find(
        tmp_path, lambda: write(tmp_path, *(f"d{n % 7}/{n}.txt" for n in range(120))), [RequestedFile("d1/1.txt")]
    )
    assert names(found) == ["d1/1.txt"]
    assert "more than 100" in found.note


async def test_a_folder_swapped_for_a_link_after_the_walk_is_not_read_through(tmp_path: Path) -> None:
    workdir, secret = tmp_path / "work", tmp_path / "home"
    write(secret, "key.txt")
    found = await run_and_find(workdir, lambda: write(workdir, "folder/key.txt"))
    (workdir / "folder").rename(workdir / "moved")
    (workdir / "folder").symlink_to(secret)
    with pytest.raises(OSError, match="not below the work directory"):
        read(found.files[0])


async def test_deep_folders_loops_of_links_and_odd_names_do_no_harm(tmp_path: Path) -> None:
    def run() -> None:
        write(tmp_path, "/".join(["d"] * 40) + "/deep.txt", "new\nline\x1b.txt")
        (tmp_path / "loop").symlink_to(tmp_path)
        (tmp_path / os.fsdecode(b"latin-\xe9.txt")).write_text("x")

    found = await run_and_find(tmp_path, run)
    assert names(found) == [os.fsdecode(b"latin-\xe9.txt"), "new\nline\x1b.txt"]


def test_outputs_of_a_call_and_of_a_request_are_read_and_described() -> None:
    assert requested_outputs({"outputs": [{"name": "a.csv"}, {"name": "b", "format": "md"}]}) == (
        RequestedFile("a.csv"),
        RequestedFile("b", "md"),
    )
    assert requested_outputs({}) == ()
    text = describe_requested_files([RequestedFile("a.csv"), RequestedFile("b", "md", "the answer")])
    assert "- a.csv\n- b (md): the answer" in text
    assert describe_requested_files([]) == ""
