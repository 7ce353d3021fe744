"""Stores installed skills in the database that servers share. The skills that were used on this server also have a
local copy.

Each skill is one value that describes its versions. The files of each version are a separate value, which never
changes. An index of each namespace lists its skills.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import shutil
import stat
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import NotFound
from agent_kernel.sessions.log.message_bus import MessageBus, SharedValue, change_value
from agent_kernel.tools.skills.package import PackageEntry, UnpackedSkill, unpack
from agent_kernel.tools.skills.skill import (
    MAX_SKILLS,
    MAX_VERSIONS,
    Skill,
    Version,
    check_same_name,
    too_many_skills,
    too_many_versions,
)

INDEX = "skills"
KEEP_S = 10 * 365 * 24 * 3600.0
"""Seconds for which a skill is kept in the database after its last new version."""
STALE_S = 3600.0
"""Age in seconds at which local copies of deleted skills are removed. Younger copies stay, because a turn may still use
them."""
PARTIAL = ".partial-"


class SharedSkills:
    """The skills, stored as values in the database that servers share. ``bus`` is the connection to the database; no
    other object may use it. The methods may be called from any thread; they block, and raise StoreError. ``copies`` is
    the directory of local copies, which is created with the first copy.
    """

    def __init__(self, bus: MessageBus, copies: Path) -> None:
        self._bus = bus
        self._copies = copies
        self._lock = threading.Lock()

    def list(self, namespace: str) -> list[Skill]:
        return [skill for id in self._ids(namespace) if (skill := self.get(namespace, id))]

    def get(self, namespace: str, id: str) -> Skill | None:
        """Return the skill. The files of its versions may not have been copied to this disk yet: see ``fetch``."""
        value = self._read(namespace, _name(id))
        rows = [] if value is None else _decode(value.body)
        versions = tuple(_version(id, row, self._copy_of(namespace, row["files_id"])) for row in rows)
        return Skill(id, versions[0].created, versions) if versions else None

    def fetch(self, namespace: str, version: Version) -> Version:
        """Copy the files of the version to this disk, unless they exist. Raises NotFound if the version was deleted,
        and OSError.
        """
        if version.content.is_dir():
            return version
        value = self._read(namespace, _files_name(version.content.name))
        if value is None:
            raise NotFound(f"The skill {version.name!r} was deleted.")
        self._remove_stale_copies(namespace)
        version.content.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial_copy = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=version.content.parent))
        try:
            unpack(_entries(value.body), partial_copy)
            partial_copy.chmod(0o755)
            try:
                partial_copy.rename(version.content)
            except OSError:
                if not version.content.is_dir():  # otherwise another process made the copy
                    raise
        finally:
            shutil.rmtree(partial_copy, ignore_errors=True)
        return version

    def add(
        self, namespace: str, id: str, unpacked: UnpackedSkill, content: Path, created: float, *, is_new: bool
    ) -> None:
        """Store the files below ``content`` as a new skill, or as the next version of the skill ``id``. Raises
        QuotaExceeded, InvalidRequest, NotFound, OSError."""
        files_id = secrets.token_hex(16)
        row = {
            "name": unpacked.name,
            "description": unpacked.description,
            "created": created,
            "files": [*unpacked.files],
            "files_id": files_id,
        }
        packed = _pack(content, unpacked.files)
        self._change(namespace, _files_name(files_id), lambda known: packed)
        try:
            # The index is written first, so that it lists every stored skill, even if this process is killed in
            # between.
            if is_new:
                self._change(namespace, INDEX, partial(_add_id, id))
            self._change(namespace, _name(id), partial(_add_row, row, is_new))
        except BaseException:
            if is_new:
                self._change(namespace, INDEX, partial(_remove_id, id))
            self._change(namespace, _files_name(files_id), lambda known: None)
            raise

    def delete(self, namespace: str, id: str) -> bool:
        """Delete a skill with all versions. Returns False if there is none."""
        gone: list[dict[str, Any]] = []

        def take(known: bytes | None) -> None:
            gone[:] = [] if known is None else _decode(known)

        self._change(namespace, _name(id), take)
        for row in gone:
            self._change(namespace, _files_name(row["files_id"]), lambda known: None)
            shutil.rmtree(self._copy_of(namespace, row["files_id"]), ignore_errors=True)
        self._change(namespace, INDEX, partial(_remove_id, id))
        return bool(gone)

    def close(self) -> None:
        with self._lock:
            self._bus.close()

    def _ids(self, namespace: str) -> Sequence[str]:
        value = self._read(namespace, INDEX)
        return [] if value is None else json.loads(value.body)

    def _copy_of(self, namespace: str, files_id: str) -> Path:
        return self._copies / hashlib.sha256(namespace.encode("utf-8", "surrogatepass")).hexdigest()[:32] / files_id

    def _remove_stale_copies(self, namespace: str) -> None:
        """Remove the local copies of versions that were deleted on other servers, and the remains of killed servers."""
        used = {version.content for skill in self.list(namespace) for version in skill.versions}
        for path in self._copy_of(namespace, "").glob("*"):
            with suppress(OSError):
                if path not in used and path.stat().st_mtime < time.time() - STALE_S:
                    shutil.rmtree(path, ignore_errors=True)

    def _read(self, namespace: str, name: str) -> SharedValue | None:
        with self._lock:
            return self._bus.get_value(namespace, name)

    def _change(self, namespace: str, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        with self._lock:
            change_value(self._bus, namespace, name, change, KEEP_S)


def _name(id: str) -> str:
    return f"skill/{id}"


def _files_name(files_id: str) -> str:
    return f"skill files/{files_id}"


def _decode(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(body)
    return rows


def _version(id: str, row: dict[str, Any], content: Path) -> Version:
    facts = (row["name"], row["description"], row["created"])
    return Version(id, row["number"], *facts, content, tuple(row["files"]))


def _add_id(id: str, content: bytes | None) -> bytes:
    ids: list[str] = json.loads(content) if content else []
    if id not in ids and len(ids) >= MAX_SKILLS:
        raise too_many_skills()
    return json.dumps(ids if id in ids else [*ids, id]).encode()


def _remove_id(id: str, content: bytes | None) -> bytes | None:
    left = [skill_id for skill_id in json.loads(content or b"[]") if skill_id != id]
    return json.dumps(left).encode() if left else None


def _add_row(row: dict[str, Any], is_new: bool, content: bytes | None) -> bytes:
    rows = _decode(content) if content else []
    if not rows and not is_new:
        raise NotFound("The skill was deleted while its new version was being added.")
    if len(rows) >= MAX_VERSIONS:
        raise too_many_versions()
    if rows:
        check_same_name(row["name"], rows[-1]["name"])
    number = max((row["number"] for row in rows), default=0) + 1
    return json.dumps([*rows, {**row, "number": number}]).encode()


def _pack(content: Path, files: Sequence[str]) -> bytes:
    """Return the files as a zip that records which of them are executable."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | (content / name).stat().st_mode & 0o777) << 16
            archive.writestr(info, (content / name).read_bytes())
    return packed.getvalue()


def _entries(packed: bytes) -> list[PackageEntry]:
    archive = zipfile.ZipFile(io.BytesIO(packed))
    return [
        PackageEntry(info.filename, partial(archive.open, info), bool(info.external_attr >> 16 & stat.S_IXUSR))
        for info in archive.infolist()
    ]
