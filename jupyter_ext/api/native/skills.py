"""Routes that list, upload and delete skills and their versions, in the format of OpenAI, or of Anthropic for its
clients.

Only a person uploads or deletes skills. Otherwise code of one notebook could put instructions into every other notebook
that uses a skill.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.skills.package import MAX_BYTES, PackageEntry, read_zip, too_large
from agent_kernel.tools.skills.skill import Skill, Version
from jupyter_ext.api.dialects.handler import SharedHandler
from jupyter_ext.api.http.handler import guard
from jupyter_ext.api.native.file_json import page
from jupyter_ext.api.schemas import files as shapes
from jupyter_ext.api.schemas.operation import Parameter, operation

ZIP = b"PK\x03\x04"
FIELDS = frozenset({"file", "files", "files[]"})
FIRST = "skills-2025-10-02"
OVERHEAD = 1 << 20
"""Maximum bytes of an upload in addition to the bytes of its files."""
PACKED = "The files must be those of one skill, including its SKILL.md."
PACKAGE = shapes.form(
    ("files",), files={"type": "array", "items": shapes.BYTES, "description": "A zip file, or the files of a skill."}
)
SHAPE = (
    Parameter("source", "If it is sent, the response has Anthropic's format; anthropic lists no skills."),
    Parameter("anthropic-version", "If it is sent, the response has Anthropic's format.", place="header"),
    Parameter("anthropic-beta", "If it is sent, the response has Anthropic's format.", place="header"),
)


def skill_to_json(skill: Skill) -> dict[str, Any]:
    return {
        "id": skill.id,
        "object": "skill",
        "created_at": int(skill.created),
        "name": skill.latest.name,
        "description": skill.latest.description,
        "latest_version": str(skill.latest.number),
        "default_version": str(skill.latest.number),
    }


def version_to_json(version: Version) -> dict[str, Any]:
    return {
        "id": f"{version.id}_v{version.number}",
        "object": "skill.version",
        "skill_id": version.id,
        "version": str(version.number),
        "created_at": int(version.created),
        "name": version.name,
        "description": version.description,
        "files": list(version.files),
    }


def custom_to_json(skill: Skill, *, first: bool) -> dict[str, Any]:
    """Return a skill in Anthropic's format. In the first version of that format (``first``), which mistral.rs uses
    too, the source is a string."""
    return {
        "id": skill.id,
        "type": "skill",
        "display_title": skill.latest.name,
        "display_name": skill.latest.name,
        "source": "custom" if first else {"type": "custom"},
        "latest_version": str(skill.latest.number),
        "latest_version_id": f"{skill.id}_v{skill.latest.number}",
        "created_at": _iso(skill.created),
        "updated_at": _iso(skill.latest.created),
    }


def custom_version_to_json(version: Version) -> dict[str, Any]:
    return {
        "id": f"{version.id}_v{version.number}",
        "type": "skill_version",
        "skill_id": version.id,
        "version": str(version.number),
        "name": version.name,
        "description": version.description,
        "directory": version.folder,
        "created_at": _iso(version.created),
    }


class SkillUpload(SharedHandler):
    """Base class of the handlers of the skill routes. It selects the format of the response, and reads the parts of an
    upload."""

    max_body = MAX_BYTES + OVERHEAD

    @property
    def anthropic(self) -> bool:
        headers = self.request.headers
        return "anthropic-version" in headers or "anthropic-beta" in headers or bool(self.get_argument("source", ""))

    @property
    def first(self) -> bool:
        """Whether the client expects the first (beta) version of Anthropic's format: its header anthropic-beta says so,
        or it sends no header anthropic-version."""
        headers = self.request.headers
        return FIRST in headers.get("anthropic-beta", "") or "anthropic-version" not in headers

    def to_json(self, skill: Skill) -> dict[str, Any]:
        return custom_to_json(skill, first=self.first) if self.anthropic else skill_to_json(skill)

    def version_body(self, version: Version) -> dict[str, Any]:
        return custom_version_to_json(version) if self.anthropic else version_to_json(version)

    def reply_list(self, skills: list[dict[str, Any]]) -> None:
        if self.anthropic:
            self.reply({"data": skills, "has_more": False, "next_page": None})
        else:
            self.reply(page(skills))

    async def add_upload(self, id: str = "") -> Skill:
        """Store the uploaded skill. Raises InvalidRequest, NotFound, QuotaExceeded."""
        files = [file for field in FIELDS for file in self.request.files.get(field, [])]
        if not files:
            raise InvalidRequest("Send the skill as multipart/form-data: a zip, or its files, in the field 'files'.")
        if sum(len(file.body) for file in files) > MAX_BYTES:
            raise too_large()
        store, namespace = self.services.runtime.skills, self.caller.namespace

        def add() -> Skill:
            if len(files) == 1 and files[0].body.startswith(ZIP):
                return store.add(namespace, read_zip(files[0].body), id)
            return store.add(namespace, [PackageEntry.from_bytes(file.filename, file.body) for file in files], id)

        return await asyncio.to_thread(add)


class SkillsHandler(SkillUpload):
    @guard("read")
    @operation(shapes.Skills | shapes.CustomSkills, query=SHAPE)
    async def get(self) -> None:
        """List skills.

        With ``source=anthropic`` the list is empty, because the server has none of Anthropic's own skills.
        """
        theirs = self.get_argument("source", "") == "anthropic"
        skills = [] if theirs else await asyncio.to_thread(self.services.runtime.skills.list, self.caller.namespace)
        self.reply_list([self.to_json(skill) for skill in skills])

    @guard("write", kernels=False)
    @operation(shapes.Skill | shapes.CustomSkill, body=PACKAGE, query=SHAPE, errors=(422, 507), conditions=PACKED)
    async def post(self) -> None:
        """Upload a skill."""
        self.reply(self.to_json(await self.add_upload()))


class SkillHandler(SkillUpload):
    @guard("read")
    @operation(shapes.Skill | shapes.CustomSkill, query=SHAPE, errors=(404,))
    async def get(self, id: str) -> None:
        """Get a skill."""
        self.reply(self.to_json(await asyncio.to_thread(self.services.runtime.skills.get, self.caller.namespace, id)))

    @guard("write", kernels=False)
    @operation(shapes.SkillDeleted | shapes.CustomSkillDeleted, query=SHAPE, errors=(404,))
    async def delete(self, id: str) -> None:
        """Delete a skill."""
        await asyncio.to_thread(self.services.runtime.skills.delete, self.caller.namespace, id)
        openai = {"id": id, "object": "skill.deleted", "deleted": True}
        self.reply({"id": id, "type": "skill_deleted"} if self.anthropic else openai)


class SkillVersionsHandler(SkillUpload):
    @guard("read")
    @operation(shapes.SkillVersions | shapes.CustomSkillVersions, query=SHAPE, errors=(404,))
    async def get(self, id: str) -> None:
        """List the versions of a skill."""
        skill = await asyncio.to_thread(self.services.runtime.skills.get, self.caller.namespace, id)
        self.reply_list([self.version_body(version) for version in reversed(skill.versions)])

    @guard("write", kernels=False)
    @operation(
        shapes.SkillVersion | shapes.CustomSkillVersion,
        body=PACKAGE,
        query=SHAPE,
        errors=(404, 422, 507),
        conditions=PACKED,
    )
    async def post(self, id: str) -> None:
        """Upload a new version of a skill."""
        self.reply(self.version_body((await self.add_upload(id)).latest))


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
