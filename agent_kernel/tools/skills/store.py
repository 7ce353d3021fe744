"""Installed skills on disk, separate for each namespace: ``<hash>/<skill>/versions/<n>/{version.json, content/}``.

A version is stored by one rename, so that it is never incomplete, and it never changes, so that nothing else must be
kept in sync.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import InvalidRequest, NotFound, QuotaExceeded, StoreError, StoreFull
from agent_kernel.tools.skills.package import PackageEntry, unpack
from agent_kernel.tools.skills.skill import Skill, SkillSpecifier, Version, is_id

MAX_SKILLS = 200
"""Maximum number of skills of a namespace."""
MAX_VERSIONS = 50
"""Maximum number of versions of a skill."""
STALE_S = 3600.0
STAGING = ".staging-"


class SkillStore:
    """The skills below ``root``, which is created with the first skill. All methods block: call them in a thread."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._root = root
        self._clock = clock

    def list(self, namespace: str) -> list[Skill]:
        """Return the skills, newest first."""
        skills = (self._load(path) for path in self._of(namespace).glob("skill_*"))
        return sorted((skill for skill in skills if skill), key=lambda skill: (-skill.created, skill.id))

    def get(self, namespace: str, id: str) -> Skill:
        """Return a skill. Raises NotFound."""
        skill = self._load(self._of(namespace) / id) if is_id(id) else None
        if skill is None:
            raise NotFound(f"There is no skill {id[:80]!r}.")
        return skill

    def version(self, namespace: str, reference: SkillSpecifier) -> Version:
        """Return a version of a skill. Raises NotFound."""
        skill = self.get(namespace, reference.id)
        if not reference.number:
            return skill.latest
        for version in skill.versions:
            if version.number == reference.number:
                return version
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
        """Add a skill, or with ``id`` a new version of it. Raises InvalidRequest, NotFound, QuotaExceeded,
        StoreError."""
        known = self.get(namespace, id) if id else None
        if known and len(known.versions) >= MAX_VERSIONS:
            raise QuotaExceeded(
                f"A skill can have at most {MAX_VERSIONS} versions.", hint="Delete the skill, or add it as a new one."
            )
        if not known and len(self.list(namespace)) >= MAX_SKILLS:
            raise QuotaExceeded(f"There are {MAX_SKILLS} skills already.", hint="Delete a skill first.")
        id = id or f"skill_{secrets.token_hex(16)}"
        try:
            self._add(namespace, entries, id, known)
        except OSError as error:
            kind = StoreFull if error.errno == errno.ENOSPC else StoreError
            raise kind(f"The skill could not be saved: {error.strerror or error}.") from error
        return self.get(namespace, id)

    def _add(self, namespace: str, entries: Iterable[PackageEntry], id: str, known: Skill | None) -> None:
        with self._stage() as staged:
            content = staged / "content"
            content.mkdir(mode=0o755)
            unpacked = unpack(entries, content)
            if known and unpacked.name != known.latest.name:
                raise InvalidRequest(
                    f"The skill is named {unpacked.name!r}, "
                    f"but a new version of {known.latest.name!r} must have the same name."
                )
            body = {
                "name": unpacked.name,
                "description": unpacked.description,
                "created": self._clock(),
                "files": list(unpacked.files),
            }
            (staged / "version.json").write_text(json.dumps(body), "utf-8")
            self._place(staged, self._of(namespace) / id / "versions")

    def delete(self, namespace: str, id: str) -> None:
        """Delete a skill with all versions. Raises NotFound."""
        self.get(namespace, id)
        gone = self._root / f"{STAGING}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):  # somebody else deleted it
            (self._of(namespace) / id).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _of(self, namespace: str) -> Path:
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
        raise QuotaExceeded(f"A skill can have at most {MAX_VERSIONS} versions.")


def _numbers(versions: Path) -> list[int]:
    try:
        return [int(path.name) for path in versions.iterdir() if path.name.isascii() and path.name.isdecimal()]
    except OSError:
        return []
