"""Tests which packages are accepted as a skill, and which are refused as a whole: names, links, zip bombs."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.skills import package
from agent_kernel.tools.skills.package import PackageEntry, folder, read_zip, unpack

HEAD = b"---\nname: Charts\ndescription: Draws charts\n---\nUse matplotlib.\n"


def pack_zip(files: dict[str, bytes], *, mode: int = 0, compress: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compress) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = compress
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return made.getvalue()


def entries(*names: str) -> list[PackageEntry]:
    return [PackageEntry.from_bytes(name, HEAD) for name in ("SKILL.md", *names)]


def test_a_zip_of_one_folder_is_a_skill(tmp_path: Path) -> None:
    data = pack_zip(
        {"charts/SKILL.md": HEAD, "charts/scripts/draw.py": b"print(1)", "__MACOSX/._x": b"", "charts/": b""}
    )
    unpacked = unpack(read_zip(data), tmp_path)
    assert (unpacked.name, unpacked.description) == ("Charts", "Draws charts")
    assert unpacked.files == ("SKILL.md", "scripts/draw.py")
    assert (tmp_path / "scripts/draw.py").read_bytes() == b"print(1)"
    assert stat.S_IMODE((tmp_path / "SKILL.md").stat().st_mode) == 0o444


def test_what_its_owner_may_run_stays_so(tmp_path: Path) -> None:
    unpack(read_zip(pack_zip({"SKILL.md": HEAD, "run.sh": b"#!/bin/sh"}, mode=stat.S_IFREG | 0o755)), tmp_path)
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o555


def test_a_folder_is_read_without_following_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "more").mkdir(parents=True)
    target.mkdir()
    (source / "SKILL.md").write_bytes(HEAD)
    (source / "more" / "a.txt").write_text("a")
    (source / "passwd").symlink_to("/etc/passwd")
    assert unpack(folder(source), target).files == ("SKILL.md", "more/a.txt")


@pytest.mark.parametrize(
    "name",
    [
        *("../evil", "a/../../evil", "/etc/evil", "a//b", "a/./b", "..", ""),
        *("C:evil", "C:\\evil", "a\\b", "..\\evil", "\\\\host\\share", "file:stream"),
        *("CON", "con.txt", "a/NUL.md", "aux", "COM1", "lpt9.log", "COM¹", "CONIN$"),
        *("trailing.", "trailing ", " leading", "tab\there", "line\nbreak", "nul\0here", "bidi\u202etxt", "wild*card"),
        *("x" * 201, "/".join("a" * 17), "y/" * 300 + "z"),
    ],
)
def test_a_name_that_is_not_safe_everywhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        unpack(entries(name), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [("a", "A"), ("a", "a/b"), ("a/b", "A/B"), ("é", "e\u0301"), ("skill.md",)])
def test_names_that_meet_on_some_system_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="Two entries"):
        unpack(entries(*names), tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_a_zip_with_a_link_or_a_device_is_refused(kind: int) -> None:
    with pytest.raises(InvalidRequest, match="a link or a device"):
        read_zip(pack_zip({"SKILL.md": b"/etc/passwd"}, mode=kind | 0o777))


def test_500_files_are_taken_and_one_more_is_not(tmp_path: Path) -> None:
    assert len(unpack(entries(*(f"f{n}" for n in range(499))), tmp_path).files) == 500
    (tmp_path / "more").mkdir()
    with pytest.raises(InvalidRequest, match="at most 500 files"):
        unpack(entries(*(f"f{n}" for n in range(500))), tmp_path / "more")


def test_a_bomb_is_counted_while_it_is_written(tmp_path: Path) -> None:
    """A thousand to one: 60 MiB in 60 kB."""
    data = pack_zip({"SKILL.md": HEAD, **{f"zeros{n}": bytes(15 << 20) for n in range(4)}})
    assert len(data) < 1 << 20
    with pytest.raises(InvalidRequest, match="at most 50 MiB"):
        unpack(read_zip(data), tmp_path)
    written = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert written <= package.MAX_BYTES


def test_a_size_that_the_zip_lies_about_does_not_matter(tmp_path: Path) -> None:
    data = bytearray(pack_zip({"SKILL.md": HEAD, "zeros": bytes(60 << 20)}))
    for mark, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = data.rfind(mark)
        data[at + offset : at + offset + 4] = struct.pack("<L", 10)
    with pytest.raises(InvalidRequest):
        unpack(read_zip(bytes(data)), tmp_path)
    assert not (tmp_path / "zeros").exists() or (tmp_path / "zeros").stat().st_size <= package.MAX_BYTES


def test_a_zip_in_a_zip_is_a_file_like_any_other(tmp_path: Path) -> None:
    inner = pack_zip({"zeros": bytes(40 << 20)})
    assert unpack(read_zip(pack_zip({"SKILL.md": HEAD, "inner.zip": inner})), tmp_path).files == (
        "SKILL.md",
        "inner.zip",
    )
    assert (tmp_path / "inner.zip").stat().st_size == len(inner)


def test_a_list_of_a_million_entries_is_not_read_into_memory() -> None:
    record = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = record * 100_000
    for count in (100_000 % 65536, 3):
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), 0, 0)
        with pytest.raises(InvalidRequest, match="at most 500"):
            read_zip(directory + end)


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip", pack_zip({"SKILL.md": HEAD})[:-30], os.urandom(3000)])
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_zip(data)


def test_a_broken_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(pack_zip({"SKILL.md": HEAD}, compress=zipfile.ZIP_STORED))
    at = data.find(b"Use matplotlib")
    data[at] ^= 0xFF
    with pytest.raises(InvalidRequest, match="cannot be unpacked"):
        unpack(read_zip(bytes(data)), tmp_path)


def test_a_way_to_compress_that_few_know_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="use deflate"):
        read_zip(pack_zip({"SKILL.md": HEAD}, compress=zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"no head",
        b"---\nname: x\n",
        b"---\nname: x\n---\n",
        b"---\nname: ''\ndescription: y\n---\n",
        b"---\nname: [x]\ndescription: y\n---\n",
        b"---\n- x\n---\n",
        b"---\nname: x\ndescription: !!python/object/apply:os.system ['true']\n---\n",
        b"---\na: &a [x, x]\nb: [*a, *a]\nname: x\ndescription: y\n---\n",
        b"---\n" + b"x: " * 10_000 + b"\n---\n",
        b"---\nname: " + b"[" * 5_000 + b"\ndescription: y\n---\n",
        b"---\nname: " + b"x" * 101 + b"\ndescription: y\n---\n",
        b"---\nname: x\ndescription: y\n" + b"#" * (17 << 10) + b"\n---\n",
    ],
)
def test_a_head_without_name_and_description_is_refused(tmp_path: Path, head: bytes) -> None:
    with pytest.raises(InvalidRequest):
        unpack([PackageEntry.from_bytes("SKILL.md", head)], tmp_path)


def test_a_skill_without_its_main_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"SKILL\.md"):
        unpack([PackageEntry.from_bytes("a/README.md", HEAD), PackageEntry.from_bytes("b/SKILL.md", HEAD)], tmp_path)
