"""Offers the skills of a turn: those that the request names, and those beside a notebook in a trusted folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core import safe_path
from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.events import Notice
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.turn_request import Note
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.session_notices import SessionNotices
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.skills.package import inspect_folder
from agent_kernel.tools.skills.skill import MAIN, Version, tree
from agent_kernel.tools.skills.store import SkillStore

GROUP = "skills"
READ = "read_skill"
BESIDE = Path(".agents") / "skills"
SLICE_CHARS = 5_000
MAX_FILE = 4 << 20
MOST = 20
"""Maximum number of skills in a turn."""
PARAMETERS = parameters(
    ["skill"],
    skill={"type": "string", "description": "Name of the skill, as listed"},
    path={"type": "string", "description": f"File of the skill; {MAIN} if left out"},
    start={"type": "integer", "minimum": 0, "description": "First character to read (0)"},
)
SKILLS = "skills"
REMEMBERED = 500


class ReadSkill:
    """Reads a file of a mounted skill in slices, for a model without code or shell."""

    spec = ToolSpec(
        READ,
        f"Read a file of a skill that was given to you for this turn; {MAIN} first. Long files come in slices.",
        PARAMETERS,
        kind="files.read",
        shared_state=False,
        label="Read a skill",
    )

    def __init__(self, mounted: Sequence[MountedSkill]) -> None:
        self._skills = {name: skill.version for skill in mounted for name in (skill.folder, skill.version.name)}

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        version = self._skills.get(arguments["skill"])
        if version is None:
            return ToolOutput(f"There is no skill of that name here; there are: {', '.join(self._skills)}.", "error")
        path = arguments.get("path") or MAIN
        try:
            data = await asyncio.to_thread(_read, version.content, path)
        except (OSError, InvalidRequest):
            return ToolOutput(
                f"The skill has no file {path[:200]!r}; it has:\n" + "\n".join(tree(version.files)), "error"
            )
        if b"\0" in data[:8192]:
            return ToolOutput(f"{path} is not a text file; open it with code.", "error")
        text, start = data.decode("utf-8", "replace"), arguments.get("start", 0)
        end = min(len(text), start + SLICE_CHARS)
        more = f"\n[characters {start} to {end} of {len(text)}; go on with start={end}]" if end < len(text) else ""
        return ToolOutput((text[start:end] or "(nothing there)") + more)


class SkillTools:
    """Offers the skills of a turn.

    With a ``sandbox``, skills are copied to a directory in which the sandbox's code finds them; without one, the model
    can only read them with the tool. ``shell`` means that turns have a shell, which runs in the sandbox even if Python
    runs in the user's kernel.
    """

    def __init__(self, store: SkillStore, sandbox: Sandbox | None, *, shell: bool = False) -> None:
        self._store = store
        self._sandbox = sandbox
        self._shell = shell
        self._mounts = SkillMounts()
        self._notices = SessionNotices()

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        """Return the tools. Raises InvalidRequest, NotFound for skills of the request that do not exist."""
        skills = await asyncio.to_thread(self._requested_skills, occasion)
        if occasion.wants(GROUP, READ):
            skills += await self._notebook_skills(occasion)
        workdir = self._workdir(occasion)
        if not skills:
            if workdir is not None:
                await asyncio.to_thread(self._mounts.unmount, workdir)
            return OfferedTools()
        mounted = await self._mount(occasion, workdir, skills[:MOST])
        note = Note("Skills", _describe(mounted, _place(occasion) if workdir is not None else ""))
        return OfferedTools((ReadSkill(mounted),), (note,))

    def _requested_skills(self, occasion: ToolSourceContext) -> list[Version]:
        if len(occasion.request.skills) > MOST:
            raise InvalidRequest(f"A turn can use at most {MOST} skills.")
        namespace = occasion.key.namespace
        return [self._store.find(namespace, text) for text in dict.fromkeys(occasion.request.skills)]

    def _workdir(self, occasion: ToolSourceContext) -> Path | None:
        """Return the directory in which sandboxed code of the turn finds the skills; None if the turn has no such
        code."""
        if self._sandbox is None or not (self._shell or occasion.request.where == "sandbox"):
            return None
        return self._sandbox.workdir(occasion.key)

    async def _mount(
        self, occasion: ToolSourceContext, workdir: Path | None, skills: Sequence[Version]
    ) -> list[MountedSkill]:
        if workdir is None:
            return assign_folders(skills)
        try:
            return await asyncio.to_thread(self._mounts.mount, workdir, skills)
        except OSError as error:
            occasion.emit(Notice("warning", f"Skills could not be copied for this turn's code: {error.strerror}."))
            return assign_folders(skills)

    async def _notebook_skills(self, occasion: ToolSourceContext) -> list[Version]:
        folder = occasion.notebook_dir / BESIDE if occasion.notebook_dir else None
        if folder is None or not await asyncio.to_thread(folder.is_dir):
            return []
        if not occasion.trusted:
            self._notices.warn(
                occasion,
                f"{BESIDE} beside this notebook is in no folder that you trust, so its skills are "
                "not used. To use them: agent-kernel trust.",
            )
            return []
        versions, problems = await asyncio.to_thread(_find_skills, folder)
        for problem in problems:
            self._notices.warn(occasion, problem)
        return versions


def _place(occasion: ToolSourceContext) -> str:
    who = "code" if occasion.request.where == "sandbox" else "the shell"
    return f"For {who} they lie in the directory {SKILLS} of the work directory, read-only; "


def _describe(mounted: Sequence[MountedSkill], where: str) -> str:
    """Return the description of the skills for the model. Names and descriptions are texts of the skills' authors."""
    lines = [
        f"For this turn you have {len(mounted)} skill(s): folders of instructions. {where}the tool {READ} reads them. "
        f"Before you use one, read its {MAIN} and follow it.",
    ]
    for skill in mounted:
        lines.append(f"- {skill.folder}: {skill.version.description}")
        lines += [f"    {SKILLS}/{skill.folder}/{name}" for name in tree(skill.version.files)]
    return "\n".join(lines)


def _read(root: Path, name: str) -> bytes:
    with os.fdopen(safe_path.open_file(root, name), "rb") as file:
        return file.read(MAX_FILE)


def _find_skills(here: Path) -> tuple[list[Version], list[str]]:
    """Return the valid skills below a directory, sorted by name, and a description of the problem of each invalid one.
    Links are not followed. Blocking."""
    versions: list[Version] = []
    problems: list[str] = []
    with suppress(OSError):
        for path in sorted(here.iterdir())[: MOST * 2]:
            if path.is_symlink() or not path.is_dir():
                continue
            try:
                versions.append(_version(path))
            except (AgentKernelError, OSError) as error:
                problems.append(f"The skill {BESIDE / path.name} is not used: {error}")
    return versions[:MOST], problems


def _version(path: Path) -> Version:
    """Check a folder as an upload is checked and return it as a version. The user may be editing the folder, so its
    modification time tells its versions apart."""
    unpacked, changed = inspect_folder(path)
    return Version("", 1, unpacked.name, unpacked.description, changed, path, unpacked.files)


# Copies skills into ``skills/<name>`` of a session's work directory, where the session's code finds them.
#
# The session's code can write to the work directory and may have put links there. A copy is therefore made beside the
# work directory, and moved in by a rename below a directory that was opened without following links.


@dataclass(frozen=True, slots=True)
class MountedSkill:
    """A mounted skill; ``folder`` is its name below ``skills``."""

    version: Version
    folder: str


@dataclass(frozen=True, slots=True)
class CopiedSkills:
    """The skills that were copied into one work directory. ``marks`` are the texts that identify their versions.
    ``identity`` is (device number, inode number) of the directory ``skills`` that contains the copies."""

    marks: tuple[str, ...]
    identity: tuple[int, int]


class SkillMounts:
    """Remembers which skills are in which work directory. Copies skills only if a turn needs skills that are not there,
    or if the copies are missing."""

    def __init__(self) -> None:
        self._copied = RecentEntries[Path, CopiedSkills](REMEMBERED)

    def mount(self, workdir: Path, skills: Sequence[Version]) -> list[MountedSkill]:
        """Copy the skills into ``workdir``, unless the same versions are there already. Blocking. Raises OSError, for
        example if the disk is full."""
        mounted = assign_folders(skills)
        marks = tuple(skill.version.mark for skill in mounted)
        copied = self._copied.get(workdir)
        if copied is None or copied.marks != marks or copied.identity != _identity(workdir / SKILLS):
            workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
            copied = CopiedSkills(marks, _copy_skills(workdir, mounted))
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
