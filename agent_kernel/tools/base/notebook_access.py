"""The notebook of a turn, as far as the server reaches it by itself: its saved document, and its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent_kernel.core.protocols import ToolContext, ToolOutput


@dataclass(frozen=True, slots=True)
class SavedNotebook:
    """A notebook as it was last saved: nbformat 4. ``saved`` is seconds since the epoch, 0 = unknown."""

    path: str
    saved: float
    content: Mapping[str, Any]


class NotebookRunner(Protocol):
    """Whoever runs calls in the notebook's kernel: its clients (``Offers``), or this server."""

    async def offer(self, context: ToolContext) -> ToolOutput:
        """Runs the call at most once, by its name; never raises for what the code does."""
        ...


class DraftRunner(NotebookRunner, Protocol):
    """Runs code in a draft of the notebook's kernel."""

    async def unfit(self) -> str:
        """Why no draft can be made of this kernel; empty if one can, or if the kernel is too busy to say."""
        ...


class NotebookAccess(Protocol):
    """Bound to one kernel and one notebook when the turn was submitted; a model can not name another."""

    @property
    def path(self) -> str:
        """Below the contents root; empty for a kernel without a notebook."""
        ...

    @property
    def kernel(self) -> NotebookRunner | None:
        """Runs calls in the kernel for this turn; None where only a client of the notebook may."""
        ...

    @property
    def drafts(self) -> DraftRunner | None:
        """Runs calls in a draft of the kernel for this turn; None where only a client of the notebook may."""
        ...

    @property
    def jobs(self) -> NotebookRunner | None:
        """Answers for what the server started in this kernel for the agent and still runs, or ended; None where only a
        client may run code."""
        ...

    async def document(self) -> SavedNotebook:
        """Raises NotFound when it was never saved, InvalidRequest when it is too large to be read."""
        ...
