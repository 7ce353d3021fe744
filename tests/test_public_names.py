"""Tests that the names and import paths in the documentation exist, also those of earlier versions."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

import agent_kernel
import agent_kernel.sessions

DOCUMENTED = """
agent_kernel: Agent Answer Approvals ChatPanel Client Engine Gate InputFile MemoryStore ScriptedEngine SessionStore
agent_kernel: SyncClient Tool ToolSpec tool
agent_kernel.contracts.session_files: *
agent_kernel.contracts.session_grants: *
agent_kernel.contracts.session_store: *
agent_kernel.errors: AgentKernelError InvalidRequest NotFound
agent_kernel.events: Event TurnFinished
agent_kernel.net.fetch: Fetcher
agent_kernel.net.guard: Guard
agent_kernel.peers.openai_agents: AgentsSession
agent_kernel.peers.selectools: SelectoolsStore
agent_kernel.protocols: Engine Tool ToolSpec Work
agent_kernel.sandbox.pool: LinuxSandbox
agent_kernel.sessions: Chat Sessions SyncChat SyncSessions
agent_kernel.sessions.account: account
agent_kernel.sessions.checkpoint: PendingWrite
agent_kernel.sessions.exchange: export_session import_session preview
agent_kernel.sessions.matching: *
agent_kernel.sessions.model: SessionKey
agent_kernel.sessions.observers: SessionObserver
agent_kernel.sessions.store: SessionStore
agent_kernel.settings: Settings
jupyter_ext: AgentKernel
"""


@pytest.mark.parametrize("line", DOCUMENTED.strip().splitlines())
def test_a_documented_import_works(line: str) -> None:
    module, names = line.split(": ")
    home = importlib.import_module(module)
    assert [name for name in names.split() if name != "*" and not hasattr(home, name)] == []
    assert [name for name in vars(home) if not name.startswith("_")]


@pytest.mark.parametrize("name", agent_kernel.__all__)
def test_every_public_name_is_loaded_at_its_first_use(name: str) -> None:
    assert getattr(agent_kernel, name) is not None


SEAMS = (agent_kernel.SessionStore, agent_kernel.Engine, agent_kernel.Tool)
"""They describe the methods of what implements them."""


PUBLIC = [(agent_kernel, name) for name in agent_kernel.__all__ if name != "__version__"]
PUBLIC += [(agent_kernel.sessions, name) for name in agent_kernel.sessions.__all__]


@pytest.mark.parametrize(("home", "name"), PUBLIC, ids=[name for _, name in PUBLIC])
def test_a_public_name_and_its_methods_are_described(home: ModuleType, name: str) -> None:
    """``make docs`` makes the reference of these docstrings."""
    value = getattr(home, name)
    methods = [key for key, item in vars(value).items() if inspect.isfunction(item) and key[0] != "_"]
    homes = (value, *SEAMS)
    undescribed = [key for key in methods if not any(inspect.getdoc(getattr(home, key, None)) for home in homes)]
    assert inspect.getdoc(value)
    assert undescribed == []
