from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_kernel.core import atomic_file
from agent_kernel.sessions.storage_locations import sidecar_paths
from jupyter_ext.notebooks.sidecar_file import SidecarFile


def anything(body: bytes) -> bool:
    return True


def nothing(body: bytes) -> bool:
    return False


@pytest.fixture
def file(tmp_path: Path) -> SidecarFile:
    return SidecarFile(tmp_path / "a.agent.json")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_first_write_makes_the_file_and_the_next_keeps_the_one_before(file: SidecarFile) -> None:
    assert file.write(b"one", {}, nothing) == "written"
    assert file.write(b"two", {}, anything) == "written"
    assert file.write(b"three", {}, anything) == "written"
    assert (file.main.read_bytes(), file.bak.read_bytes()) == (b"three", b"two")
    assert names(file.main.parent) == ["a.agent.json", "a.agent.json.bak"]


@pytest.fixture
def with_backup(tmp_path: Path) -> SidecarFile:
    """A sidecar whose backup is in another directory."""
    (tmp_path / "notebooks").mkdir()
    return SidecarFile(tmp_path / "notebooks" / "a.agent.json", backup=tmp_path / "data" / "kept" / "a.agent.json")


def test_a_backup_in_another_directory_is_readable_by_the_owner_only(with_backup: SidecarFile) -> None:
    with_backup.write(b"one", {}, anything)
    with_backup.write(b"two", {}, anything)
    assert (with_backup.main.read_bytes(), with_backup.bak.read_bytes()) == (b"two", b"one")
    assert names(with_backup.main.parent) == ["a.agent.json"]
    assert [path.stat().st_mode & 0o077 for path in (with_backup.bak.parent, with_backup.bak.parent.parent)] == [0, 0]


def test_a_backup_beside_the_notebook_moves_at_the_next_save_also_without_a_change(with_backup: SidecarFile) -> None:
    with_backup.write(b"two", {}, anything)
    with_backup.beside_bak.write_bytes(b"one")
    assert with_backup.write(b"two", {}, anything) == "unchanged"
    assert (with_backup.bak.read_bytes(), names(with_backup.main.parent)) == (b"one", ["a.agent.json"])
    assert names(with_backup.bak.parent) == ["a.agent.json"]


def test_a_backup_beside_the_notebook_goes_when_a_later_version_is_kept(with_backup: SidecarFile) -> None:
    with_backup.beside_bak.write_bytes(b"one")
    with_backup.main.write_bytes(b"two")
    with_backup.write(b"three", {}, anything)
    assert (with_backup.main.read_bytes(), with_backup.bak.read_bytes()) == (b"three", b"two")
    assert names(with_backup.main.parent) == ["a.agent.json"]


def test_a_backup_beside_the_notebook_stays_if_its_copy_cannot_be_written(with_backup: SidecarFile) -> None:
    with_backup.write(b"two", {}, anything)
    with_backup.beside_bak.write_bytes(b"one")
    (with_backup.bak.parent.parent).write_text("a file where the directory should be")
    assert with_backup.write(b"two", {}, anything) == "unchanged"
    assert with_backup.beside_bak.read_bytes() == b"one"
    with pytest.raises(FileExistsError):
        with_backup.write(b"three", {}, anything)
    assert (with_backup.main.read_bytes(), with_backup.beside_bak.read_bytes()) == (b"two", b"one")
    assert names(with_backup.main.parent) == ["a.agent.json", "a.agent.json.bak"]


def test_a_copy_of_a_backup_that_reads_back_differently_is_not_used(
    with_backup: SidecarFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_backup.write(b"two", {}, anything)
    with_backup.beside_bak.write_bytes(b"one")
    write_synced = atomic_file.write_synced
    monkeypatch.setattr(atomic_file, "write_synced", lambda path, data, mode: write_synced(path, data[:-1], mode))
    assert with_backup.write(b"two", {}, anything) == "unchanged"
    assert with_backup.beside_bak.read_bytes() == b"one"
    assert names(with_backup.bak.parent) == []


def test_a_link_in_the_place_of_a_backup_is_not_followed(with_backup: SidecarFile, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("somebody's")
    with_backup.beside_bak.symlink_to(tmp_path / "other")
    with_backup.write(b"one", {}, anything)
    with_backup.write(b"two", {}, anything)
    assert with_backup.bak.read_bytes() == b"one"


def test_nothing_is_written_when_nothing_changed(file: SidecarFile) -> None:
    file.write(b"one", {}, anything)
    before = file.main.stat()
    assert file.write(b"one", {}, nothing) == "unchanged"
    after = file.main.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_an_unknown_file_is_never_written_over(file: SidecarFile) -> None:
    file.main.write_bytes(b"somebody else's")
    assert file.write(b"ours", {}, nothing) == "conflict"
    assert file.write(b"ours", {}, nothing) == "conflict"
    assert file.main.read_bytes() == b"somebody else's"
    assert file.conflict.read_bytes() == b"ours"
    assert names(file.main.parent) == ["a.agent.conflict.json", "a.agent.json"]


def test_large_media_lie_in_a_directory_beside_the_file(file: SidecarFile) -> None:
    file.write(b"one", {"abc": b"image"}, anything)
    assert (file.blobs / "abc").read_bytes() == b"image"
    assert file.blobs.name == "a.agent"


def test_a_move_takes_everything_and_stops_before_another_sidecar(file: SidecarFile, tmp_path: Path) -> None:
    file.write(b"one", {"abc": b"image"}, anything)
    file.write(b"two", {"abc": b"image"}, anything)
    new = SidecarFile(tmp_path / "b.agent.json")
    file.move(new)
    assert names(tmp_path) == ["b.agent", "b.agent.json", "b.agent.json.bak"]
    other = SidecarFile(tmp_path / "c.agent.json")
    other.main.write_bytes(b"unknown")
    new.move(other)
    assert (new.main.read_bytes(), other.main.read_bytes()) == (b"two", b"unknown")


def test_a_removal_leaves_what_is_unknown(file: SidecarFile) -> None:
    file.write(b"one", {"abc": b"image"}, anything)
    file.remove(nothing)
    assert file.main.exists()
    file.remove(anything)
    assert names(file.main.parent) == []
    file.remove(anything)


def test_a_directory_that_is_gone_is_an_error_and_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SidecarFile(tmp_path / "gone" / "a.agent.json").write(b"x", {}, anything)
    assert SidecarFile(tmp_path / "made" / "a.agent.json", make_parents=True).write(b"x", {}, anything) == "written"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_the_old_sidecar_and_nothing_half_written(small_disk: Path) -> None:
    file = SidecarFile(small_disk / "a.agent.json")
    file.write(b"old", {}, anything)
    (small_disk / "filler").write_bytes(b"x" * 48 * 1024)
    with pytest.raises(OSError, match="No space left"):
        file.write(b"n" * 40 * 1024, {}, anything)
    assert file.main.read_bytes() == b"old"
    assert names(small_disk) == ["a.agent.json", "filler"]
    (small_disk / "filler").unlink()
    assert file.write(b"n" * 40 * 1024, {}, anything) == "written"
    assert file.bak.read_bytes() == b"old"


def test_what_a_killed_writer_left_is_taken_away_by_the_next_one(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    mine, theirs = os.getpid(), gone.pid
    left = [f".nb.agent.json.{theirs}.tmp", f".nb.agent.conflict.json.{theirs}.tmp", f".nb.agent.json.bak.{theirs}"]
    kept = [f".nb.agent.json.bak.{mine}", f".other.agent.json.{theirs}.tmp", ".nb.agent.notes"]
    for name in (*left, *kept):
        (tmp_path / name).write_text("half")
    SidecarFile(tmp_path / "nb.agent.json").write(b"{}", {}, lambda body: True)
    assert {path.name for path in tmp_path.iterdir()} == {"nb.agent.json", *kept}


OLD, NEW = "a" * 64, "b" * 64


def test_media_that_no_version_names_any_more_are_taken_away(file: SidecarFile) -> None:
    file.write(OLD.encode(), {OLD: b"old"}, anything)
    file.write(NEW.encode(), {NEW: b"new"}, anything)
    assert names(file.blobs) == [OLD, NEW], "the version before still names it"
    (file.blobs / "a person's.txt").write_text("stays")
    file.write(NEW.encode() + b" ", {NEW: b"new"}, anything)
    assert names(file.blobs) == ["a person's.txt", NEW]
    file.write(b"none", {}, anything)
    file.forget_bak()
    assert names(file.blobs) == ["a person's.txt"]
    assert not file.bak.exists()


def test_media_of_a_conflicting_version_stay(file: SidecarFile) -> None:
    file.main.write_bytes(OLD.encode())
    file.blobs.mkdir()
    (file.blobs / OLD).write_bytes(b"theirs")
    assert file.write(NEW.encode(), {NEW: b"ours"}, nothing) == "conflict"
    assert names(file.blobs) == [OLD, NEW]


def test_nothing_is_written_or_taken_away_through_a_link(file: SidecarFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OLD).write_bytes(b"somebody's")
    file.blobs.symlink_to(elsewhere)
    file.write(b"one", {}, anything)
    assert names(elsewhere) == [OLD]
    assert file.files([OLD], 1000) == {}
    with pytest.raises(OSError, match=f"{file.blobs.name} is a symbolic link"):
        file.write(b"two", {NEW: b"new"}, anything)
    assert (file.main.read_bytes(), names(elsewhere)) == (b"one", [OLD])


def test_a_pipe_in_the_place_of_a_sidecar_is_an_error_and_no_wait(file: SidecarFile) -> None:
    os.mkfifo(file.main)
    with pytest.raises(OSError, match="not a regular file"):
        file.write(b"one", {}, anything)


WRITES_FOR_EVER = """
import sys
from pathlib import Path
from agent_kernel.core import atomic_file
from agent_kernel.sessions.storage_locations import sidecar_paths
from jupyter_ext.notebooks.sidecar_file import SidecarFile
file = SidecarFile(Path(sys.argv[1]))
for number in range(10**9):
    body = b"%d " % (number % 10) * 40_000
    file.write(body, {f"{number % 3}" * 64: body}, lambda present: True)
    if number == 1:
        print("writing", flush=True)
"""


def test_a_writer_that_is_killed_leaves_a_whole_sidecar_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    file = SidecarFile(tmp_path / "nb.agent.json")
    for attempt in range(2):
        command = [sys.executable, "-c", WRITES_FOR_EVER, str(file.main)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.01 * attempt)
            writer.kill()
        body = file.main.read_bytes()
        assert body == body[:2] * 40_000, "one version, all of it"
        assert file.bak.read_bytes()[1:2] == b" "
    assert file.write(b"{}", {}, anything) == "written"
    assert {path.name for path in tmp_path.iterdir()} <= {"nb.agent.json", "nb.agent.json.bak", "nb.agent"}


def test_a_writer_that_was_killed_behind_keeping_the_version_before_leaves_nothing_to_the_next(
    file: SidecarFile,
) -> None:
    file.write(b"one", {}, anything)
    os.link(file.main, file.bak)
    file.write(b"two", {}, anything)
    assert (file.main.read_bytes(), file.bak.read_bytes()) == (b"two", b"one")
    assert names(file.main.parent) == ["a.agent.json", "a.agent.json.bak"]


@pytest.mark.parametrize("size", [230, 243])
def test_a_sidecar_can_have_the_longest_name_that_the_file_system_allows(tmp_path: Path, size: int) -> None:
    file = SidecarFile(tmp_path / f"{'ü' * (size // 2)}{'x' * (size % 2)}.agent.json", backup=tmp_path / "kept" / "b")
    assert file.write(b"one", {}, nothing) == "written"
    assert file.write(b"two", {}, anything) == "written"
    assert (file.main.read_bytes(), file.bak.read_bytes()) == (b"two", b"one")
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("size", [239, 241, 244])
@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_notebook_with_a_long_name_has_a_previous_and_a_conflicting_version(
    tmp_path: Path, size: int, letter: str
) -> None:
    """The names of 245 to 250 bytes with .ipynb: that of the sidecar fits, and what is added to it did not."""
    stem = letter * (size // len(letter.encode()))
    notebook = tmp_path / f"{stem}.ipynb"
    file = SidecarFile(tmp_path / f"{stem}.agent.json")
    assert file.write(b"one", {}, nothing) == "written"
    assert file.write(b"two", {}, anything) == "written"
    assert file.write(b"three", {}, nothing) == "conflict"
    assert (file.main.read_bytes(), file.bak.read_bytes(), file.conflict.read_bytes()) == (b"two", b"one", b"three")
    assert {path.name for path in tmp_path.iterdir()} <= {path.name for path in sidecar_paths(notebook)}
    file.forget_bak()
    file.remove(anything)
    assert names(tmp_path) == [file.conflict.name]


def test_two_notebooks_whose_long_names_differ_at_the_end_have_their_own_conflicting_versions(tmp_path: Path) -> None:
    one, other = (SidecarFile(tmp_path / f"{'x' * 240}{end}.agent.json") for end in ("one", "two"))
    for file, body in ((one, b"1"), (other, b"2")):
        file.write(body, {}, nothing)
        file.write(body * 2, {}, nothing)
    assert (one.conflict.read_bytes(), other.conflict.read_bytes()) == (b"11", b"22")
