"""Adds, lists and removes the skills of the caller."""

from __future__ import annotations

import asyncio
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agent_kernel.client.http import ServerConnection, json_of
from agent_kernel.client.input_file import InputFile
from agent_kernel.client.multipart_form import MultipartForm
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.notebook.server_client import route


@dataclass(frozen=True, slots=True)
class Skill:
    """An installed skill; a turn names it by ``id`` or ``id@version``."""

    id: str
    name: str
    description: str
    latest_version: str
    created_at: int = 0

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Skill:
        return cls(
            str(wire["id"]),
            str(wire["name"]),
            str(wire["description"]),
            str(wire["latest_version"]),
            int(wire.get("created_at", 0)),
        )


class SkillsClient:
    """The skills of a server. Adding and removing requires a user's token; a kernel's credential is refused."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def add(self, path: str | os.PathLike[str], *, version_of: str = "") -> Skill:
        """Upload a skill: a folder with a ``SKILL.md``, or a zip file of such a folder. Symbolic links in the folder
        are left out. ``version_of`` is the id of the skill of which this is a new version. Raises InvalidRequest,
        QuotaExceeded."""
        with tempfile.TemporaryFile() as packed:
            form = MultipartForm({}, await asyncio.to_thread(_package, path, packed), field="files")
            target = route("skills", version_of, "versions") if version_of else "skills"
            response = await self._connection.send("POST", target, form.pieces(), headers=form.headers)
        reply = json_of(response)
        return await self.get(version_of) if version_of else Skill.from_json(reply)

    async def list(self) -> Sequence[Skill]:
        return [Skill.from_json(skill) for skill in (await self._connection.call("GET", "skills"))["data"]]

    async def get(self, id: str) -> Skill:
        return Skill.from_json(await self._connection.call("GET", route("skills", id)))

    async def delete(self, id: str) -> None:
        await self._connection.call("DELETE", route("skills", id))


def _package(path: str | os.PathLike[str], packed: BinaryIO) -> InputFile:
    """Return the file at ``path`` if it is a zip. A folder is packed into the file ``packed``."""
    source = Path(path).expanduser()
    if not source.is_dir():
        return InputFile.from_path(source, mime="application/zip")
    _zip(source, packed)
    return InputFile.from_file(packed, f"{source.resolve().name}.zip", "application/zip")


def _zip(folder: Path, into: BinaryIO) -> None:
    if not (folder / "SKILL.md").is_file():
        raise InvalidRequest(f"{str(folder)!r} has no SKILL.md.", hint="A skill is a folder with this file.")
    root = folder.resolve()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(root):
                archive.write(path, Path(root.name, path.relative_to(root)).as_posix())
    into.seek(0)
