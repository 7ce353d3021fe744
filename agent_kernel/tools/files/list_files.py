"""Defines the ``list_files`` tool, which lists the files of this session with their ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.files import File
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.tools.base.parameter_schema import parameters

LISTED = 100
"""Maximum number of files in the list; the newest ones are listed."""
PARAMETERS = parameters()


class ListFiles:
    spec = ToolSpec(
        "list_files",
        "List the files of this conversation: what tools made and what the person brought, oldest first.",
        PARAMETERS,
        kind="files.read",
        where="server",
        shared_state=False,
        label="File access",
        result_chars=20_000,
    )

    def __init__(self, files: FileRegistry) -> None:
        self._files = files

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        files = await self._files.files(context.key)
        newest = files[-LISTED:]
        left_out = [f"({len(files) - len(newest)} older ones are not listed)"] if len(newest) < len(files) else []
        text = "\n".join([*left_out, *map(_line, newest)]) or "There are no files."
        return ToolOutput(text, details={"files": [_facts(file) for file in newest]})


def _line(file: File) -> str:
    if file.error:
        return f"- {file.name}: {file.message}"
    whose = f"made by {file.tool or 'a tool'}" if file.purpose == "agent_output" else "brought by the person"
    return f"- {file.id}: {file.name} ({file.mime}, {file.size} bytes), {whose} in turn {file.turn + 1}"


def _facts(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "name": file.name,
        "format": file.format,
        "bytes": file.size,
        "purpose": file.purpose,
        "source": file.tool,
        "round": file.round,
        "turn": file.turn,
    }
