"""Defines the interfaces of tool sources. There is one source for each kind of tool, and each source offers its tools
at the beginning of every turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_kernel.core.events import Emit
from agent_kernel.core.protocols import Tool
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import Note, PageCell, TurnRequest
from agent_kernel.tools.base.notebook_access import NotebookAccess, NotebookRunner


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The turn for which a source offers its tools.

    ``notebook_dir`` is the directory of the turn's notebook; the settings in it may be used only if ``trusted`` is
    true. ``emit`` sends notices to the user, about missing tools or slow preparations. ``notebook`` is the notebook
    itself, if the server has access to it. ``turn`` is the turn's id, which a source needs to send a request to an open
    page of the notebook before the first round.
    """

    key: SessionKey
    request: TurnRequest
    emit: Emit
    notebook_dir: Path | None = None
    trusted: bool = False
    notebook: NotebookAccess | None = None
    turn: str = ""

    def wants(self, *names: str) -> bool:
        """Return whether the request allows any of these tools or groups."""
        return self.request.tools is None or any(name in self.request.tools for name in names)


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools and notes that a source provides for a turn.

    The model reads ``notes`` before the prompt, in this turn only. ``page`` contains the cells that replace the
    conversation; None keeps the conversation."""

    tools: tuple[Tool, ...] = ()
    notes: tuple[Note, ...] = ()
    page: tuple[PageCell, ...] | None = None


class ToolSource(Protocol):
    """The interface of a tool source, an object that offers tools at the beginning of each turn."""

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        """Return the tools of this source for one turn.

        A tool that is unavailable is reported as a Notice and left out, so that the turn can run without it. Raises
        InvalidRequest for an error in the request itself.
        """
        ...


@runtime_checkable
class ClosableSource(Protocol):
    """A source that owns connections or processes, which end when the server stops."""

    async def aclose(self) -> None: ...


@runtime_checkable
class StartableSource(Protocol):
    """A source that prepares its tools when the server starts, so that the first turn does not have to wait."""

    async def start(self) -> None:
        """Start in the background and return at once. Does not raise; ``offer`` reports failures."""
        ...


def runner_for(occasion: ToolSourceContext, name: str, clients: NotebookRunner) -> NotebookRunner | None:
    """Return the runner for calls of the tool ``name`` in the notebook's kernel; None if nobody can run them.

    ``clients`` (the notebook's clients) run the calls if the requesting client declared the tool. Otherwise the server
    runs them if it is allowed to.
    """
    if name in occasion.request.client_tools:
        return clients
    return occasion.notebook.kernel if occasion.notebook is not None else None


async def gather_tools(sources: Sequence[ToolSource], occasion: ToolSourceContext) -> OfferedTools:
    """Combine the tools of all sources in order. If two tools have the same name, the first one is used."""
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
