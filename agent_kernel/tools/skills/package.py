"""Unpacks an uploaded skill, which is a zip file or a list of named files. All files are checked and counted while they
are written. A package with any error is refused as a whole."""

from __future__ import annotations

import io
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from agent_kernel.core import safe_path
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.skills.skill import MAIN

MAX_BYTES = 50 << 20
"""Maximum size of an upload, and of all its unpacked files together."""
MAX_ENTRIES = 500
MAX_DEPTH = 16
PART_BYTES = 200
PATH_CHARS = 500
DIRECTORY_BYTES = 2 << 20
"""Maximum size of a zip's central directory. The library reads this directory before any file can be counted."""
CHUNK = 1 << 16
LEFT_OUT = ("__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", ".git")
DEVICES = frozenset({"con", "prn", "aux", "nul", "conin$", "conout$"})
NUMBERED = frozenset({"com", "lpt"})
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error, ValueError, OverflowError)
"""Exceptions that the library raises for an invalid zip."""
_END = struct.Struct("<4s4H2LH")
_END_MARK, _FAR_MARK = b"PK\x05\x06", b"PK\x06\x07"
HEAD_BYTES = 16 << 10
NAME_CHARS = 100
DESCRIPTION_CHARS = 2_000
DEPTH = 8


@dataclass(frozen=True, slots=True)
class PackageEntry:
    """A file of a package. ``open`` returns its content as a stream. ``runs`` is true if the file is executable."""

    name: str
    open: Callable[[], IO[bytes]]
    runs: bool = False

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> PackageEntry:
        return cls(name, partial(io.BytesIO, data))


@dataclass(frozen=True, slots=True)
class UnpackedSkill:
    name: str
    description: str
    files: tuple[str, ...]


def unpack(entries: Iterable[PackageEntry], target: Path) -> UnpackedSkill:
    """Write the files, read-only, below the empty directory ``target``. Blocking.

    Raises InvalidRequest, and OSError for a full disk; the caller then removes ``target``.
    """
    included = _without_top([entry for entry in entries if not _is_left_out(entry.name)])
    names = _check_names(included)
    if MAIN not in names:
        raise InvalidRequest(
            f"The skill package has no {MAIN} at its top level or in its only top-level folder. Add one."
        )
    bytes_left = MAX_BYTES
    for name, entry in names.items():
        path = target / name
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        bytes_left -= _write(entry, path, bytes_left)
    with (target / MAIN).open("rb") as file:
        title, description = head_of(file.read(HEAD_BYTES + 8))
    return UnpackedSkill(title, description, tuple(sorted(names)))


def inspect_folder(root: Path) -> tuple[UnpackedSkill, float]:
    """Check a directory as an upload is checked, without copying it. Return the skill, and the time when the directory
    was last changed (seconds since the epoch).

    Links are left out. Blocking. Raises InvalidRequest for a directory that an upload could not contain, and OSError.
    """
    files = _walk(root)
    names = _check_names([_directory_entry(root, file.name) for file in files])
    if MAIN not in names:
        raise InvalidRequest(f"The skill's folder has no {MAIN}. Add one.")
    if sum(file.stamp[0] for file in files) > MAX_BYTES:
        raise too_large()
    with names[MAIN].open() as file:
        title, description = head_of(file.read(HEAD_BYTES + 8))
    changed = max(file.stamp[1] for file in files) / 1e9
    return UnpackedSkill(title, description, tuple(sorted(names))), changed


def read_zip(data: bytes) -> list[PackageEntry]:
    """Return the files of a zip. Raises InvalidRequest if the zip is too large or unreadable, or contains anything but
    plain files and folders."""
    if len(data) > MAX_BYTES:
        raise too_large()
    _check_directory(data)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (*DAMAGED, OSError):
        raise InvalidRequest(
            "The uploaded file is not a readable zip. Send a zip, or the files of the skill."
        ) from None
    entries = []
    for info in archive.infolist():
        if info.is_dir():
            _check_path(info.filename.rstrip("/"))
        else:
            _check_info(info)
            runs = bool(info.external_attr >> 16 & stat.S_IXUSR)
            entries.append(PackageEntry(info.filename, partial(archive.open, info), runs))
    return entries


def _check_info(info: zipfile.ZipInfo) -> None:
    problem = ""
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        problem = "is a link or a device; a skill can contain only files"
    elif info.flag_bits & 1:
        problem = "is encrypted"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = "is compressed with a method that is not supported; use deflate"
    elif "\0" in info.orig_filename or "\\" in info.orig_filename:
        problem = "has characters that are not safe in a name"
    if problem:
        raise InvalidRequest(f"{_quote(info.filename)} {problem}.")


def folder(root: Path) -> list[PackageEntry]:
    """Return the files of a directory; links are left out. Blocking. Raises InvalidRequest if there are too many
    files."""
    return [_directory_entry(root, path.name, _runs(root / path.name)) for path in _walk(root)]


def _directory_entry(root: Path, name: str, runs: bool = False) -> PackageEntry:
    """Return a file of a directory, which is opened without following links."""
    return PackageEntry(name, lambda: os.fdopen(safe_path.open_file(root, name), "rb"), runs)


def _walk(root: Path) -> list[safe_path.WalkedFile]:
    files, complete = safe_path.walk(root, MAX_ENTRIES * 4, lambda name: name not in LEFT_OUT)
    if not complete or len(files) > MAX_ENTRIES:
        raise too_many()
    return files


def _runs(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & stat.S_IXUSR)
    except OSError:
        return False


def too_large() -> InvalidRequest:
    return InvalidRequest(f"A skill can have at most {MAX_BYTES >> 20} MiB, packed and unpacked.")


def too_many() -> InvalidRequest:
    return InvalidRequest(f"A skill can have at most {MAX_ENTRIES} files.")


def _write(entry: PackageEntry, path: Path, max_bytes: int) -> int:
    """Write a file and return its size in bytes; raises InvalidRequest if there are more than ``max_bytes`` bytes. The
    bytes are counted while reading, because the size that a zip declares may be wrong."""
    size = 0
    mode = 0o555 if entry.runs else 0o444
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(fd, "wb") as out:
        try:
            with closing(entry.open()) as source:
                while chunk := source.read(CHUNK):
                    size += len(chunk)
                    if size > max_bytes:
                        raise too_large()
                    out.write(chunk)
        except DAMAGED as error:
            raise InvalidRequest(f"{_quote(entry.name)} cannot be unpacked ({type(error).__name__}).") from None
        path.chmod(mode)
    return size


def _without_top(entries: list[PackageEntry]) -> list[PackageEntry]:
    """Return the entries without the single top folder that contains them all, if that folder contains SKILL.md."""
    if any(entry.name == MAIN for entry in entries):
        return entries
    tops = {entry.name.partition("/")[0] for entry in entries}
    if len(tops) != 1 or not any(entry.name == f"{next(iter(tops))}/{MAIN}" for entry in entries):
        return entries
    _check_path(next(iter(tops)))
    return [PackageEntry(entry.name.partition("/")[2], entry.open, entry.runs) for entry in entries]


def _check_names(entries: list[PackageEntry]) -> dict[str, PackageEntry]:
    """Return the files by name. Raises InvalidRequest for names that are unsafe, or that mean the same file on some
    system."""
    if len(entries) > MAX_ENTRIES:
        raise too_many()
    names: dict[str, PackageEntry] = {}
    seen: dict[str, bool] = {}
    for entry in entries:
        _check_path(entry.name)
        parts = unicodedata.normalize("NFC", entry.name).casefold().split("/")
        for depth in range(1, len(parts) + 1):
            key, is_file = "/".join(parts[:depth]), depth == len(parts)
            if seen.get(key, is_file) != is_file or (is_file and key in seen):
                raise InvalidRequest(
                    f"Two entries of the skill package have the name {_quote(entry.name)}, or names that some systems "
                    "do not distinguish. Rename one of them."
                )
            seen[key] = is_file
        names[entry.name] = entry
    return names


def _check_path(name: str) -> None:
    problem = ""
    parts = name.split("/")
    if not name or len(name) > PATH_CHARS or len(parts) > MAX_DEPTH:
        problem = "is empty, too long or too deep"
    elif any(part in ("", ".", "..") for part in parts):
        problem = "leads to a place outside the skill"
    elif any(sign in name for sign in '\\:*?"<>|') or not name.isprintable():
        problem = "has characters that are not safe in a name"
    elif any(len(part.encode()) > PART_BYTES or part != part.rstrip(". ") or part[0] == " " for part in parts):
        problem = "cannot be written on every system"
    elif any(_is_device(part) for part in parts):
        problem = "is the name of a device"
    if problem:
        raise InvalidRequest(f"The name {_quote(name)} {problem}.")


def _is_device(part: str) -> bool:
    stem = part.partition(".")[0].rstrip().casefold()
    return stem in DEVICES or (len(stem) == 4 and stem[:3] in NUMBERED and not stem[3].isalpha())


def _is_left_out(name: str) -> bool:
    return any(part in LEFT_OUT for part in name.split("/"))


def _check_directory(data: bytes) -> None:
    """Check the size of the central directory before the library reads it into memory."""
    at = data.rfind(_END_MARK, max(0, len(data) - (1 << 16) - _END.size))
    if at < 0 or len(data) - at < _END.size:
        raise InvalidRequest("The uploaded file is not a readable zip. Send a zip, or the files of the skill.")
    _, _, _, record, total, size, _, _ = _END.unpack_from(data, at)
    if data[max(0, at - 20) : at][:4] == _FAR_MARK or max(record, total) > 2 * MAX_ENTRIES or size > DIRECTORY_BYTES:
        raise too_many()


def _quote(name: str) -> str:
    return repr(name[:100])


# Parses the front matter of a SKILL.md: YAML between two lines of ``---``, with a name and a description.


def head_of(data: bytes) -> tuple[str, str]:
    """Return (name, description) from the front matter in ``data``, the content of a SKILL.md. Raises InvalidRequest,
    which states what is missing."""
    import yaml

    lines = data[: HEAD_BYTES + 8].decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in (line.rstrip() for line in lines[1:]):
        raise InvalidRequest(
            f"{MAIN} must begin with a line '---', a name, a description and a line '---', in at most "
            f"{HEAD_BYTES >> 10} KiB."
        )
    end = next(number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    text = "\n".join(lines[1:end])
    try:
        _check_plain(yaml.parse(text, Loader=yaml.SafeLoader))
        body = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The front matter of {MAIN} is not YAML ({type(error).__name__}).") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"The front matter of {MAIN} must have a name and a description.")
    name, description = (_line(body.get(field), field) for field in ("name", "description"))
    if len(name) > NAME_CHARS or len(description) > DESCRIPTION_CHARS:
        raise InvalidRequest(
            f"A skill's name can have at most {NAME_CHARS} characters, its description {DESCRIPTION_CHARS}."
        )
    return name, description


def _check_plain(events: Iterable[object]) -> None:
    """Raise InvalidRequest for YAML that could exhaust memory or time.

    A few lines of aliases can stand for gigabytes, and nested brackets take quadratic time. The events are read one by
    one, so that the check stops at the first event that exceeds a limit.
    """
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if kind == "AliasEvent" or depth > DEPTH:
            raise InvalidRequest(
                f"The front matter of {MAIN} has aliases or nests too deeply. Write only plain keys and texts."
            )


def _line(value: object, field: str) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text or not text.isprintable():
        raise InvalidRequest(f"The front matter of {MAIN} has no {field}.")
    return text
