"""Builds the parts of a server that a replay needs: the engine, the sandbox, and the tools that run in it. Only replays
import this module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_kernel.cli.replaying.notebook_code import NotebookCode
from agent_kernel.cli.replaying.turn_replay import LiveTools, Replay
from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.protocols import Engine
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.session_tree import Transcript
from agent_kernel.core.settings import Settings
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.code.python import PythonTools
from agent_kernel.tools.code.sandbox_environment import OPEN, SandboxEnvironment
from agent_kernel.tools.code.shell import ShellTools
from agent_kernel.turn.server_runtime import Runtime

__all__ = ["Replay", "open_parts"]


@asynccontextmanager
async def open_parts(
    settings: Settings, document: Transcript, *, ask: str | None, live: bool, cells: NotebookCode | None
) -> AsyncIterator[tuple[Engine | None, LiveTools | None]]:
    """Yield the engine and the live tools of a replay, each None if the replay does not use it. ``ask`` is the name of
    the model to ask; an empty one means the configured model, and None means that no model is asked. With ``live``,
    tools run again. Raises InvalidRequest, UnknownModel."""
    runtime = Runtime.build(settings) if ask is not None else None
    sandbox = runtime.sandbox if runtime else _sandbox(settings)
    try:
        engine = runtime.engines.get(ask or "") if runtime else None
        yield engine, _live_tools(settings, sandbox, document, cells) if live else None
    finally:
        await (runtime.aclose() if runtime else sandbox.aclose())


def _sandbox(settings: Settings) -> Sandbox:
    policy, egress = SandboxPolicy.of(settings), EgressPolicy(settings.local_only)
    return LinuxSandbox(settings.data_dir / "work", policy, hidden=[settings.data_dir], egress=egress)


def _live_tools(settings: Settings, sandbox: Sandbox, document: Transcript, cells: NotebookCode | None) -> LiveTools:
    """Return the live tools for a conversation, with its input files and the notebook's code cells."""
    environment = SandboxEnvironment(
        sandbox, surface=False, network=OPEN if settings.sandbox == "off" else settings.sandbox_network or "none"
    )
    sources = (
        PythonTools(environment, ClientCallBroker(), settings.run_timeout_s),
        ShellTools(environment, settings.shell_timeout_s),
    )
    given = [file for file in document.files if file.purpose == "user_data"]
    files = [(file, None if file.error else document.blobs.get(file.hash)) for file in given]
    return LiveTools(sandbox, sources, files, cells)
