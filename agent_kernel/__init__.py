"""An agent runtime inside Jupyter: ``%%agent`` on a local model, one conversation for each notebook.

Public names are imported on first use, so that a kernel that only loads the magic does not import the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agent_kernel.core.version import __version__

if TYPE_CHECKING:
    from agent_kernel.client.approval import Decision
    from agent_kernel.client.client import Client
    from agent_kernel.client.input_file import InputFile
    from agent_kernel.client.sync_client import SyncClient
    from agent_kernel.core.errors import AgentKernelError
    from agent_kernel.core.events import Event
    from agent_kernel.core.messages import Media, Message, ToolCall, Usage
    from agent_kernel.core.protocols import Engine, Tool, ToolSpec
    from agent_kernel.core.seams.session_store import SessionStore
    from agent_kernel.core.session import SessionKey
    from agent_kernel.core.settings import Settings
    from agent_kernel.engines.scripted import ScriptedEngine
    from agent_kernel.notebook.panel.panel import ChatPanel
    from agent_kernel.permissions import Answer, Approvals, Gate
    from agent_kernel.sessions.store.memory import MemoryStore
    from agent_kernel.sessions.store.sqlite import SqliteStore
    from agent_kernel.tools.base.functions import tool
    from agent_kernel.turn.agent import Agent, Note, TurnRequest, TurnResult
    from agent_kernel.turn.observers import SessionObserver
    from agent_kernel.turn.server_runtime import Runtime

__all__ = [
    "Agent",
    "AgentKernelError",
    "Answer",
    "Approvals",
    "ChatPanel",
    "Client",
    "Decision",
    "Engine",
    "Event",
    "Gate",
    "InputFile",
    "Media",
    "MemoryStore",
    "Message",
    "Note",
    "Runtime",
    "ScriptedEngine",
    "SessionKey",
    "SessionObserver",
    "SessionStore",
    "Settings",
    "SqliteStore",
    "SyncClient",
    "Tool",
    "ToolCall",
    "ToolSpec",
    "TurnRequest",
    "TurnResult",
    "Usage",
    "__version__",
    "load_ipython_extension",
    "tool",
    "unload_ipython_extension",
]

_HOMES = {
    "turn.agent": ("Agent", "Note", "TurnRequest", "TurnResult"),
    "turn.server_runtime": ("Runtime",),
    "client.client": ("Client",),
    "client.approval": ("Decision",),
    "client.input_file": ("InputFile",),
    "client.sync_client": ("SyncClient",),
    "engines.scripted": ("ScriptedEngine",),
    "core.errors": ("AgentKernelError",),
    "core.events": ("Event",),
    "core.messages": ("Media", "Message", "ToolCall", "Usage"),
    "notebook.panel.panel": ("ChatPanel",),
    "permissions": ("Answer", "Approvals", "Gate"),
    "sessions.store.memory": ("MemoryStore",),
    "core.session": ("SessionKey",),
    "turn.observers": ("SessionObserver",),
    "sessions.store.sqlite": ("SqliteStore",),
    "core.protocols": ("Engine", "Tool", "ToolSpec"),
    "core.seams.session_store": ("SessionStore",),
    "core.settings": ("Settings",),
    "tools.base.functions": ("tool",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'agent_kernel' has no attribute {name!r}")
    home = f"agent_kernel.{_HOME_OF[name]}"
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith(error.name):
            raise
        raise ImportError(
            f"This environment has agent-kernel-magic, which has no {name}. Install agent-kernel instead."
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])


def load_ipython_extension(shell: Any) -> None:
    """Register the magics in a shell; IPython calls this for ``%load_ext agent_kernel``."""
    importlib.import_module("agent_kernel.notebook.magic.magic").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics from a shell; IPython calls this for ``%unload_ext agent_kernel``."""
    importlib.import_module("agent_kernel.notebook.magic.magic").unload(shell)
