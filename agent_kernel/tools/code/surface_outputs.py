"""Defines the ``surface_outputs`` tool, which shows files of the work directory to the user and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.core.files import ProducedFile
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.code.workdir_changes import OUTPUTS, WorkdirSnapshot, requested_outputs

PARAMETERS = parameters(["outputs"], outputs={**OUTPUTS, "minItems": 1, "maxItems": 64})


class SurfaceOutputs:
    spec = ToolSpec(
        "surface_outputs",
        "Show files of the work directory to the person, who can then open and keep them. Runs no code.",
        PARAMETERS,
        kind="files.read",
        where="sandbox",
        label="File outputs",
    )

    def __init__(self, workdir: Path) -> None:
        self._workdir = workdir

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        before = await WorkdirSnapshot.take(self._workdir, unasked=False)
        surfaced = await before.find_outputs(requested_outputs(arguments))
        missing = any(file.error for file in surfaced.files)
        answer = {"status": "error" if missing else "success", "files": [_describe(file) for file in surfaced.files]}
        return ToolOutput(
            json.dumps(answer, ensure_ascii=False), "error" if missing else "success", files=surfaced.files
        )


def _describe(file: ProducedFile) -> dict[str, str]:
    facts = {"name": file.name, "format": file.format, "status": "error" if file.error else "success"}
    return facts | ({"error": "not produced"} if file.error else {})
