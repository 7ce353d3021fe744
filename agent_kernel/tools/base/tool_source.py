"""Where the tools of a turn come from: one source per kind of tool, each asked at the beginning of every turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_kernel.core.events import Emit
from agent_kernel.core.protocols import Tool
from agent_kernel.core.request import Note, PageCell, TurnRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.base.notebook_access import NotebookAccess, NotebookRunner


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The turn for which tools are wanted. ``notebook_dir`` is the directory of its notebook, ``trusted``: settings
    found there may be used. ``emit`` tells the person of what takes time or is missing. ``notebook`` is the notebook
    itself, where a server has it; ``turn`` is the id of the turn, for what is asked of a page before its first round.
    """

    key: SessionKey
    request: TurnRequest
    emit: Emit
    notebook_dir: Path | None = None
    trusted: bool = False
    notebook: NotebookAccess | None = None
    turn: str = ""

    def wants(self, *names: str) -> bool:
        """Whether the request leaves any of these tools or groups in."""
        return self.request.tools is None or any(name in self.request.tools for name in names)


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """``notes`` are read by the model before the prompt of this turn, and only there. ``page`` are the cells that the
    request wants in place of the conversation; None: the conversation."""

    tools: tuple[Tool, ...] = ()
    notes: tuple[Note, ...] = ()
    page: tuple[PageCell, ...] | None = None


class ToolSource(Protocol):
    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        """The tools of this source for one turn. What can not be had is told by ``occasion.emit`` (a Notice) and left
        out: a turn does not fail for want of a tool. Raises InvalidRequest for what the request itself has wrong."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class StartableSource(Protocol):
    """A source that has something to begin when the server starts, so that the first turn need not wait for it."""

    async def start(self) -> None:
        """Returns at once. What does not come about is told by ``offer``. Raises nothing."""
        ...


def runner_for(occasion: ToolSourceContext, name: str, clients: NotebookRunner) -> NotebookRunner | None:
    """Who runs a call of this name in the notebook's kernel: its clients, if the one that asks declared it, else the
    server where it may; None: nobody."""
    if name in occasion.request.client_tools:
        return clients
    return occasion.notebook.kernel if occasion.notebook is not None else None


async def gather_tools(sources: Sequence[ToolSource], occasion: ToolSourceContext) -> OfferedTools:
    """What all of them offer, in their order; of two tools with one name the first stays."""
    tools: dict[str, Tool] = {}
    notes: list[Note] = []
    page: tuple[PageCell, ...] | None = None
    for source in sources:
        offered = await source.offer(occasion)
        notes += offered.notes
        page = offered.page if page is None else page
        for tool in offered.tools:
            tools.setdefault(tool.spec.name, tool)
    return OfferedTools(tuple(tools.values()), tuple(notes), page)
