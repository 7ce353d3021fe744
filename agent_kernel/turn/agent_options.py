"""Groups the constructor arguments of ``Agent``: options of one agent, services of its server, and its notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from agent_kernel.core.seams.file_store import FileKeeper
from agent_kernel.core.settings import Effort
from agent_kernel.tools.base.callbacks import Callback
from agent_kernel.tools.base.notebook_access import NotebookAccess
from agent_kernel.tools.base.tool_source import ToolSource
from agent_kernel.turn.input_hook import InputHook
from agent_kernel.turn.observers import Observers, SessionObserver
from agent_kernel.turn.post_turn_tasks import PostTurnTasks
from agent_kernel.turn.turn_writer import TurnWriter

MAX_TOOL_ROUNDS = 16


class AgentOptions(TypedDict, total=False):
    """Optional keyword arguments of ``Agent``.

    ``tool_callbacks`` maps names of functions that a request declares to callbacks (name and arguments -> text) that
    run them. ``max_tool_rounds`` 0 disables tools. ``metadata`` is stored with every turn. ``input_hook`` decides what
    the model sees of a conversation and what is stored of a request (``turn/input_hook.py``). ``history_limit`` is the
    maximum number of earlier items that the model sees (None: all that fit). ``observers`` are notified about the
    session. With ``check_numbers``, each turn states which numbers of its answer come from a tool. ``effort`` applies
    to requests that state none.
    """

    tool_callbacks: Mapping[str, Callback] | None
    max_tool_rounds: int
    metadata: Mapping[str, Any] | None
    input_hook: InputHook | None
    history_limit: int | None
    observers: Observers | Sequence[SessionObserver]
    check_numbers: bool
    effort: Effort


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services that a server provides to the agents of all its sessions.

    ``writer`` writes the turns; by default each agent has its own. ``post_turn_tasks`` run in the background after a
    turn; without them older turns are summarised only on request. ``sources`` provide tools at the start of each turn,
    and ``files`` stores what tools produce."""

    writer: TurnWriter | None = None
    post_turn_tasks: PostTurnTasks | None = None
    sources: Sequence[ToolSource] = ()
    files: FileKeeper | None = None


@dataclass(frozen=True, slots=True)
class TurnNotebook:
    """The notebook of a turn. Settings in the notebook's ``directory`` are used only if ``trusted`` is true, because
    the user has confirmed this folder then."""

    directory: Path | None = None
    trusted: bool = False
    access: NotebookAccess | None = None
