"""Defines the interfaces through which the server reads the notebook of a turn and runs code in its kernel;
and the base of the tools that the page of a notebook executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.turn_request import Note


@dataclass(frozen=True, slots=True)
class SavedNotebook:
    """A notebook as it was last saved, in nbformat 4. ``saved`` is in seconds since the epoch, 0 if unknown."""

    path: str
    saved: float
    content: Mapping[str, Any]


class NotebookRunner(Protocol):
    """Runs calls in the notebook's kernel. Implemented by ``ClientCallBroker``, which uses the notebook's clients, and
    by the server."""

    async def offer(self, context: ToolContext) -> ToolOutput:
        """Run the call, which names its tool, at most once. An error of the code is part of the output and is not
        raised."""
        ...


class DraftRunner(NotebookRunner, Protocol):
    """Runs code in a draft (a temporary copy) of the notebook's kernel."""

    async def unfit(self) -> str:
        """Return why no draft of this kernel can be made. Return an empty string if one can be made, or if the kernel
        is too busy to answer."""
        ...


class NotebookAccess(Protocol):
    """Access to one kernel and one notebook, which are fixed when the turn is submitted; a model cannot choose another
    kernel or notebook."""

    @property
    def path(self) -> str:
        """Path of the notebook below the contents root; empty for a kernel without a notebook."""
        ...

    @property
    def kernel(self) -> NotebookRunner | None:
        """The runner of calls of this turn in the kernel; None if only a client of the notebook may run them."""
        ...

    @property
    def drafts(self) -> DraftRunner | None:
        """The runner of calls of this turn in a draft of the kernel; None if only a client of the notebook may run
        them."""
        ...

    @property
    def jobs(self) -> NotebookRunner | None:
        """The runner of the tool that reports on jobs, which is code that the server started in this kernel for the
        agent; None if only a client may run code in the kernel."""
        ...

    async def describe_data(self, prompt: str, *, in_draft: bool) -> tuple[Note, ...]:
        """Describe the data in the kernel and the files in its working directory that the prompt names, or the newest
        tables if it names none. With ``in_draft``, describe the data in the draft of the kernel, if code has changed
        it. Return no notes if there is no data, if the kernel is busy, and if only a client may ask it."""
        ...

    async def document(self) -> SavedNotebook:
        """Return the saved notebook. Raises NotFound if it was never saved, InvalidRequest if it is too large."""
        ...


# Defines a tool whose calls run in the notebook: in its kernel, in a draft of the kernel, or in an open page.


class NotebookCallTool:
    """Passes each call to ``runner``, which runs it according to the name of the tool."""

    def __init__(self, spec: ToolSpec, runner: NotebookRunner) -> None:
        self.spec = spec
        self._runner = runner

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return await self._runner.offer(context)
