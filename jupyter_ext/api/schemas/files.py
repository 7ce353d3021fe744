"""Response bodies of the routes of files, containers and skills."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from jupyter_ext.api.schemas.operation import Raw


class Source(TypedDict):
    tool: str
    round: int
    turn: int | str


class Facts(TypedDict):
    """The fields that all files have. ``code`` and ``message`` are present if the requested file could not be produced.
    ``truncated`` is present only if it is true: the content was too large to store."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    mime_type: str
    source: Source
    session: str
    format: NotRequired[str]
    preview: NotRequired[str]
    truncated: NotRequired[Literal[True]]
    code: NotRequired[str]
    message: NotRequired[str]


class File(Facts):
    object: Literal["file"]
    status: Literal["processed", "error"]
    status_details: str | None
    expires_at: int | None


class ContainerFile(Facts):
    object: Literal["container.file"]
    container_id: str
    path: str


class AnthropicPage(TypedDict):
    first_id: str | None
    last_id: str | None
    has_more: bool


class Page(AnthropicPage):
    object: Literal["list"]


class Files(Page):
    data: list[File]


class ContainerFiles(Page):
    data: list[ContainerFile]


class AnthropicFile(TypedDict):
    """A file in Anthropic's format, for requests with the header anthropic-version."""

    id: str
    type: Literal["file"]
    filename: str
    mime_type: str
    size_bytes: int
    created_at: str
    downloadable: bool


class AnthropicFiles(AnthropicPage):
    data: list[AnthropicFile]
    next_page: str | None


class AnthropicFileDeleted(TypedDict):
    id: str
    type: Literal["file_deleted"]


class FileDeleted(TypedDict):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class Skill(TypedDict):
    """A skill in OpenAI's format."""

    id: str
    object: Literal["skill"]
    created_at: int
    name: str
    description: str
    latest_version: str
    default_version: str


class SkillSource(TypedDict):
    type: Literal["custom"]


class CustomSkill(TypedDict):
    """A skill in Anthropic's format. It is sent for requests with the header anthropic-version or anthropic-beta, or
    with the query parameter ``source``."""

    id: str
    type: Literal["skill"]
    display_title: str
    display_name: str
    source: Literal["custom"] | SkillSource
    latest_version: str
    latest_version_id: str
    created_at: str
    updated_at: str


class Skills(Page):
    data: list[Skill]


class CustomPage(TypedDict):
    has_more: bool
    next_page: None


class CustomSkills(CustomPage):
    data: list[CustomSkill]


class SkillVersion(TypedDict):
    id: str
    object: Literal["skill.version"]
    skill_id: str
    version: str
    created_at: int
    name: str
    description: str
    files: list[str]


class CustomSkillVersion(TypedDict):
    id: str
    type: Literal["skill_version"]
    skill_id: str
    version: str
    name: str
    description: str
    directory: str
    created_at: str


class SkillVersions(Page):
    data: list[SkillVersion]


class CustomSkillVersions(CustomPage):
    data: list[CustomSkillVersion]


class SkillDeleted(TypedDict):
    id: str
    object: Literal["skill.deleted"]
    deleted: Literal[True]


class CustomSkillDeleted(TypedDict):
    id: str
    type: Literal["skill_deleted"]


def form(required: tuple[str, ...], **fields: Any) -> Raw:
    """Return the description of a ``multipart/form-data`` body with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return Raw(("multipart/form-data",), schema)


BYTES = {"type": "string", "contentMediaType": "application/octet-stream"}
