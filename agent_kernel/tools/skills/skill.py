"""Defines the metadata of a skill, and parses the specifiers with which a request names a skill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.errors import InvalidRequest, QuotaExceeded

MAX_SKILLS = 200
"""Maximum number of skills of a namespace."""
MAX_VERSIONS = 50
"""Maximum number of versions of a skill."""
MAIN = "SKILL.md"
LATEST = "latest"
TREE_ENTRIES = 80
TREE_DEPTH = 4
_ID = re.compile(r"skill_[0-9a-f]{32}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
FOLDER_CHARS = 60


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a skill, which never changes.

    ``content`` is the directory that contains its SKILL.md. ``id`` is the id of the skill, and empty for a skill beside
    a notebook. ``files`` are relative names with ``/``, sorted.
    """

    id: str
    number: int
    name: str
    description: str
    created: float
    content: Path
    files: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The skill's name, changed so that it can be used as a directory name."""
        safe = _UNSAFE.sub("-", self.name).strip(".-")[:FOLDER_CHARS]
        return safe or f"skill-{self.id[-8:] or 'x'}"

    @property
    def mark(self) -> str:
        """A text that identifies this version among all versions of all skills."""
        return f"{self.id}@{self.number}" if self.id else f"{self.content}@{self.created}"


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill; ``versions`` are ordered from first to latest and never empty."""

    id: str
    created: float
    versions: tuple[Version, ...]

    @property
    def latest(self) -> Version:
        return self.versions[-1]


@dataclass(frozen=True, slots=True)
class SkillSpecifier:
    """A skill as named in a request; ``number`` 0 is the latest version."""

    id: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> SkillSpecifier:
        """Parse ``id``, ``id@latest`` or ``id@2``. Raises InvalidRequest for any other text."""
        id, _, version = text.partition("@")
        if not _ID.fullmatch(id):
            raise InvalidRequest(f"{text[:80]!r} is not the id of a skill; ids look like skill_0123....")
        if version in ("", LATEST):
            return cls(id)
        if not (version.isascii() and version.isdecimal() and len(version) < 6 and int(version)):
            raise InvalidRequest(f"The version of a skill is a number or {LATEST}, not {version[:20]!r}.")
        return cls(id, int(version))


def is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


def tree(files: Sequence[str]) -> list[str]:
    """Return a list of the files in at most TREE_ENTRIES lines, TREE_DEPTH levels deep; for deeper files, only their
    directory is listed."""
    lines: dict[str, None] = {}
    for name in files:
        parts = name.split("/")
        lines["/".join(parts[:TREE_DEPTH]) + ("/..." if len(parts) > TREE_DEPTH else "")] = None
    entries = list(lines)[:TREE_ENTRIES]
    return [*entries, f"... and {len(lines) - TREE_ENTRIES} more"] if len(lines) > TREE_ENTRIES else entries


def check_same_name(new: str, skill_name: str) -> None:
    """Raise InvalidRequest if a new version has another name than its skill."""
    if new != skill_name:
        raise InvalidRequest(
            f"The skill is named {new!r}, but a new version of {skill_name!r} must have the same name."
        )


def too_many_skills() -> QuotaExceeded:
    return QuotaExceeded(f"There are {MAX_SKILLS} skills already.", hint="Delete a skill first.")


def too_many_versions() -> QuotaExceeded:
    return QuotaExceeded(
        f"A skill can have at most {MAX_VERSIONS} versions.", hint="Delete the skill, or add it as a new one."
    )
