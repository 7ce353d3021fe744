"""Stores the installed skills of each namespace separately: on disk as ``<hash>/<skill>/versions/<n>/{version.json,
content/}``, or in the database that servers share (``shared_skills.py``).

A version on disk is stored by one rename, so that it is never incomplete, and it never changes, so that nothing else
must be kept in sync.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import NotFound, StoreError, StoreFull
from agent_kernel.sessions.log.message_bus import MessageBus
from agent_kernel.tools.skills.package import PackageEntry, unpack
from agent_kernel.tools.skills.shared_skills import SharedSkills
from agent_kernel.tools.skills.skill import (
    MAX_SKILLS,
    MAX_VERSIONS,
    Skill,
    SkillSpecifier,
    Version,
    check_same_name,
    is_id,
    too_many_skills,
    too_many_versions,
)

COPIES = "shared"
"""The directory below the root that holds copies of shared skills."""
STALE_S = 3600.0
STAGING = ".staging-"


class SkillStore:
    """The skills below ``root``, which is created with the first skill. All methods block: call them in a thread. Where
    skills are shared, all of them also raise StoreError.

    On servers that share a database, ``bus`` is the connection to the database; no other object may use it. New skills
    then go into the database, and all servers have them; skills on this server's disk remain usable on this server.
    """

    def __init__(self, root: Path, bus: MessageBus | None = None) -> None:
        self._root = root
        self._shared = None if bus is None else SharedSkills(bus, root / COPIES)

    def list(self, namespace: str) -> list[Skill]:
        """Return the skills of a namespace, newest first."""
        skills = [skill for path in self._namespace_dir(namespace).glob("skill_*") if (skill := self._load(path))]
        if self._shared is not None:
            skills += self._shared.list(namespace)
        return sorted(skills, key=lambda skill: (-skill.created, skill.id))

    def get(self, namespace: str, id: str) -> Skill:
        """Return the skill with this id. Raises NotFound."""
        skill = self._load(self._namespace_dir(namespace) / id) if is_id(id) else None
        if skill is None and self._shared is not None and is_id(id):
            skill = self._shared.get(namespace, id)
        if skill is None:
            raise NotFound(f"There is no skill {id[:80]!r}.")
        return skill

    def version(self, namespace: str, reference: SkillSpecifier) -> Version:
        """Return a version of a skill, whose files are on this disk. Raises NotFound, StoreFull, StoreError."""
        skill = self.get(namespace, reference.id)
        if not reference.number:
            return self._fetch(namespace, skill.latest)
        for version in skill.versions:
            if version.number == reference.number:
                return self._fetch(namespace, version)
        raise NotFound(f"The skill {skill.latest.name} has no version {reference.number}.")

    def find(self, namespace: str, text: str) -> Version:
        """Return the version that a request names: by id or by name (the newest of several), optionally with ``@`` and
        a version. Raises NotFound, InvalidRequest."""
        if text.startswith("skill_"):
            return self.version(namespace, SkillSpecifier.parse(text))
        name, _, version = text.partition("@")
        for skill in self.list(namespace):
            if skill.latest.name.casefold() == name.strip().casefold():
                return self.version(namespace, SkillSpecifier.parse(f"{skill.id}@{version}"))
        raise NotFound(f"There is no skill {name[:80]!r}.", hint="See: agent-kernel skills list")

    def add(self, namespace: str, entries: Iterable[PackageEntry], id: str = "") -> Skill:
        """Add a skill. With ``id``, add a new version of this skill. Raises InvalidRequest, NotFound, QuotaExceeded,
        StoreError."""
        skill = self.get(namespace, id) if id else None
        if skill and len(skill.versions) >= MAX_VERSIONS:
            raise too_many_versions()
        if not skill and len(self.list(namespace)) >= MAX_SKILLS:
            raise too_many_skills()
        id = id or f"skill_{secrets.token_hex(16)}"
        try:
            self._add(namespace, entries, id, skill)
        except OSError as error:
            raise _to_store_error(error) from error
        return self.get(namespace, id)

    def _add(self, namespace: str, entries: Iterable[PackageEntry], id: str, skill: Skill | None) -> None:
        with self._stage() as staged:
            content = staged / "content"
            content.mkdir(mode=0o755)
            unpacked = unpack(entries, content)
            if skill:
                check_same_name(unpacked.name, skill.latest.name)
            if self._shared is not None and not (self._namespace_dir(namespace) / id).exists():
                self._shared.add(namespace, id, unpacked, content, time.time(), is_new=skill is None)
                return
            body = {
                "name": unpacked.name,
                "description": unpacked.description,
                "created": time.time(),
                "files": list(unpacked.files),
            }
            (staged / "version.json").write_text(json.dumps(body), "utf-8")
            self._place(staged, self._namespace_dir(namespace) / id / "versions")

    def delete(self, namespace: str, id: str) -> None:
        """Delete a skill with all versions. Raises NotFound."""
        self.get(namespace, id)
        if self._shared is not None and self._shared.delete(namespace, id):
            return
        gone = self._root / f"{STAGING}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):  # somebody else deleted it
            (self._namespace_dir(namespace) / id).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def close(self) -> None:
        """Release the connection to the database. A later call connects again."""
        if self._shared is not None:
            self._shared.close()

    def _fetch(self, namespace: str, version: Version) -> Version:
        if self._shared is None:
            return version
        try:
            return self._shared.fetch(namespace, version)
        except OSError as error:
            raise _to_store_error(error) from error

    def _namespace_dir(self, namespace: str) -> Path:
        return self._root / hashlib.sha256(namespace.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _load(self, path: Path) -> Skill | None:
        """Read a skill; None if it is missing or unreadable."""
        versions = sorted(
            (loaded for number in _numbers(path / "versions") if (loaded := self._version(path, number))),
            key=lambda version: version.number,
        )
        return Skill(path.name, versions[0].created, tuple(versions)) if versions else None

    def _version(self, path: Path, number: int) -> Version | None:
        place = path / "versions" / str(number)
        try:
            body: dict[str, Any] = json.loads((place / "version.json").read_text("utf-8"))
            return Version(
                path.name,
                number,
                str(body["name"]),
                str(body["description"]),
                float(body["created"]),
                place / "content",
                tuple(str(name) for name in body["files"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextmanager
    def _stage(self) -> Iterator[Path]:
        """Yield a temporary directory on the same disk; it is removed at the end unless it was renamed."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        staged = Path(tempfile.mkdtemp(prefix=STAGING, dir=self._root))
        try:
            yield staged
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove temporary directories that a killed server left behind."""
        for path in self._root.glob(f"{STAGING}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - STALE_S:
                    shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _place(staged: Path, versions: Path) -> None:
        """Rename ``staged`` to the next free version number below ``versions``. If a concurrent writer takes that
        number, the following one is used."""
        versions.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(MAX_VERSIONS + 1):
            number = max(_numbers(versions), default=0) + 1
            try:
                os.rename(staged, versions / str(number))
                return
            except OSError as error:
                if not (versions / str(number)).exists():
                    raise error
        raise too_many_versions()


def _to_store_error(error: OSError) -> StoreError:
    kind = StoreFull if error.errno == errno.ENOSPC else StoreError
    return kind(f"The skill could not be saved: {error.strerror or error}.")


def _numbers(versions: Path) -> list[int]:
    try:
        return [int(path.name) for path in versions.iterdir() if path.name.isascii() and path.name.isdecimal()]
    except OSError:
        return []
