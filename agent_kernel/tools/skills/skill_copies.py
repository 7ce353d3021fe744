"""Copies skills into ``skills/<name>`` of a session's work directory, where the session's code finds them.

The session's code can write to the work directory and may have put links there. A copy is therefore made beside the
work directory, and moved in by a rename below a directory that was opened without following links.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core import safe_path
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.tools.skills.skill import Version

SKILLS = "skills"
REMEMBERED = 500


@dataclass(frozen=True, slots=True)
class MountedSkill:
    """A mounted skill; ``folder`` is its name below ``skills``."""

    version: Version
    folder: str


@dataclass(frozen=True, slots=True)
class CopiedSkill:
    """The skills that were copied into one work directory. ``marks`` name their versions; ``identity`` is (device
    number, inode number) of the directory that was made."""

    marks: tuple[str, ...]
    identity: tuple[int, int]


class SkillMounts:
    """Remembers which skills are in which work directory. Copies skills only if a turn needs skills that are not there,
    or if the copies are missing."""

    def __init__(self) -> None:
        self._copied = RecentEntries[Path, CopiedSkill](REMEMBERED)

    def mount(self, workdir: Path, skills: Sequence[Version]) -> list[MountedSkill]:
        """Copy the skills. Blocking. Raises OSError for a full disk."""
        mounted = assign_folders(skills)
        marks = tuple(skill.version.mark for skill in mounted)
        copied = self._copied.get(workdir)
        if copied is None or copied.marks != marks or copied.identity != _identity(workdir / SKILLS):
            workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
            copied = CopiedSkill(marks, _copy_skills(workdir, mounted))
        self._copied[workdir] = copied
        return mounted

    def unmount(self, workdir: Path) -> None:
        """Remove the skills of an earlier turn. Blocking."""
        copied = self._copied.pop(workdir, None)
        if copied is not None and copied.identity == _identity(workdir / SKILLS):
            _replace(workdir, None)


def assign_folders(skills: Sequence[Version]) -> list[MountedSkill]:
    """Assign each skill a unique folder name."""
    used: set[str] = set()
    mounted = []
    for version in skills:
        folder, number = version.folder, 2
        while folder.casefold() in used:
            folder, number = f"{version.folder}-{number}", number + 1
        used.add(folder.casefold())
        mounted.append(MountedSkill(version, folder))
    return mounted


def _copy_skills(workdir: Path, mounted: Sequence[MountedSkill]) -> tuple[int, int]:
    fresh = Path(tempfile.mkdtemp(prefix=f".{workdir.name}.skills-", dir=workdir.parent))
    try:
        for skill in mounted:
            for name in skill.version.files:
                _copy(skill.version.content, name, fresh / skill.folder / name)
        for folder, _, _ in os.walk(fresh):
            os.chmod(folder, 0o755)
        _replace(workdir, fresh)
    except BaseException:  # also on Ctrl-C: no partial folder stays behind
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return _identity(workdir / SKILLS)


def _copy(root: Path, name: str, path: Path) -> None:
    """Copy the directory ``path`` to ``name`` below ``root``, read-only and without following links, because a skill
    beside a notebook is a directory that the user can change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(safe_path.open_file(root, name), "rb") as source, path.open("xb") as target:
        shutil.copyfileobj(source, target)
        runs = os.fstat(source.fileno()).st_mode & stat.S_IXUSR
    path.chmod(0o555 if runs else 0o444)


def _replace(workdir: Path, fresh: Path | None) -> None:
    """Rename ``fresh`` to ``skills`` in the work directory, and remove the directory that had this name before. If
    ``fresh`` is None, only remove it."""
    old = Path(tempfile.mkdtemp(prefix=f".{workdir.name}.old-", dir=workdir.parent))
    workdir_descriptor = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.rename(SKILLS, old / SKILLS, src_dir_fd=workdir_descriptor)
        if fresh is not None:
            os.rename(fresh, SKILLS, dst_dir_fd=workdir_descriptor)
    finally:
        os.close(workdir_descriptor)
        shutil.rmtree(old, ignore_errors=True)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else (0, 0)
