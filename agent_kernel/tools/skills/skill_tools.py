"""Offers the skills of a turn: those that the request names, and those beside a notebook in a trusted folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_kernel.core import safe_path
from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.events import Notice
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.turn_request import Note
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.session_notices import SessionNotices
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.skills.package import inspect_folder
from agent_kernel.tools.skills.skill import MAIN, Version, tree
from agent_kernel.tools.skills.skill_copies import SKILLS, MountedSkill, SkillMounts, assign_folders
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
