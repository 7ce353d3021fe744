"""Offers the file tools of a turn, and prepares its input files."""

from __future__ import annotations

import asyncio

from agent_kernel.core.events import Notice
from agent_kernel.core.protocols import Tool
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.turn_request import Note
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.code.surface_outputs import SurfaceOutputs
from agent_kernel.tools.files import input_files
from agent_kernel.tools.files.document_text import Documents
from agent_kernel.tools.files.list_files import ListFiles
from agent_kernel.tools.files.read_file import ReadFile


class FileTools:
    """Offers the file tools.

    With ``always``, every turn has them; otherwise the tools that read files are offered only to turns that have files.
    ``shell`` is true if turns have a shell, which uses the work directory wherever their Python code runs. ``fetches``
    is true if code in the work directory has network access, so that its files may contain text of unknown origin.
    """

    def __init__(
        self, files: FileRegistry, sandbox: Sandbox, *, always: bool, shell: bool, fetches: bool = False
    ) -> None:
        self._files = files
        self._sandbox = sandbox
        self._always = always
        self._shell = shell
        self._fetches = fetches
        self._documents = Documents()

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        request = occasion.request
        notes = await self._notes(occasion) if request.inputs else ()
        if not (self._always or request.inputs):
            return OfferedTools()
        workdir = self._sandbox.workdir(occasion.key) if self._works_there(occasion) else None
        tools: list[Tool] = [
            ReadFile(self._files, self._documents, workdir, fetches=self._fetches),
            ListFiles(self._files),
        ]
        if self._always and workdir is not None:
            tools.append(SurfaceOutputs(workdir))
        return OfferedTools(tuple(tool for tool in tools if occasion.wants("files", tool.spec.name)), notes)

    def _works_there(self, occasion: ToolSourceContext) -> bool:
        return occasion.request.where == "sandbox" or self._shell

    async def _notes(self, occasion: ToolSourceContext) -> tuple[Note, ...]:
        inputs = await input_files.find_inputs(self._files, occasion.key, occasion.request.inputs)
        if self._works_there(occasion):
            inputs = await asyncio.to_thread(input_files.mount_inputs, inputs, self._sandbox.workdir(occasion.key))
        for mounted_input in inputs:
            if mounted_input.problem:
                occasion.emit(Notice("warning", f"{mounted_input.file.name}: {mounted_input.problem}."))
        return (input_files.note(inputs),)
