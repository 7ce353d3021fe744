"""Builds the tool sources of a server from the setting ``tools``. Modules of a group are imported only if the group is
on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.net.guard import Guard
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.setting_declaration import split_list
from agent_kernel.core.settings import Settings
from agent_kernel.core.trusted_folders import TrustStore
from agent_kernel.core.version import __version__
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.tool_source import ToolSource
from agent_kernel.tools.code.python import PythonTools
from agent_kernel.tools.code.rebuild_variables import find_lost
from agent_kernel.tools.code.sandbox_environment import OPEN, SandboxEnvironment
from agent_kernel.tools.files.document_text import Documents
from agent_kernel.tools.files.file_tools import FileTools
from agent_kernel.tools.files.input_files import InputFiles
from agent_kernel.tools.notebook.notebook_tools import NotebookFunctions, NotebookTools
from agent_kernel.tools.skills.store import SkillStore


@dataclass(frozen=True, slots=True)
class ToolDependencies:
    """The objects that the tools of one server share.

    ``root`` returns the contents root when a turn begins; ``load`` imports ``package.module:name`` or raises
    InvalidRequest.
    """

    settings: Settings
    store: SessionStore
    sandbox: Sandbox
    client_calls: ClientCallBroker
    files: FileRegistry | None
    egress: EgressPolicy
    guard: Guard
    trust: TrustStore
    skills: SkillStore
    root: Callable[[], str]
    load: Callable[[str], Any]


def has_tools(settings: Settings, *groups: str) -> bool:
    """Return whether the setting ``tools`` includes any of these groups."""
    return not {"agent", *groups}.isdisjoint(split_list(settings.tools))


def create_sources(parts: ToolDependencies) -> list[ToolSource]:
    """Return the sources in the order in which the model reads their tools. If two tools have the same name, the first
    one is used.

    Raises InvalidRequest for a function of the settings that cannot be a tool.
    """
    settings, sources = parts.settings, list[ToolSource]()
    shell = has_tools(settings, "shell")
    network = OPEN if settings.sandbox == "off" else settings.sandbox_network or "none"
    environment = SandboxEnvironment(parts.sandbox, surface=settings.surface == "on", network=network)
    documents = Documents()  # one for both sources, so that a text that one has read is not read again
    if parts.files is not None:
        sources.append(InputFiles(parts.files, parts.sandbox, documents, shell=shell))
    if has_tools(settings, "python"):
        lost = partial(find_lost, parts.sandbox, parts.store)
        sources.append(PythonTools(environment, parts.client_calls, settings.run_timeout_s, lost))
    if shell:
        from agent_kernel.tools.code.shell import ShellTools

        sources.append(ShellTools(environment, settings.shell_timeout_s))
    if parts.files is not None:
        always, fetches = has_tools(settings, "files"), environment.fetches
        sources.append(FileTools(parts.files, parts.sandbox, documents, always=always, shell=shell, fetches=fetches))
    if has_tools(settings, "notebook"):
        sources.append(NotebookTools(parts.client_calls))
    if has_tools(settings, "recall") or settings.recall == "on":
        from agent_kernel.tools.memory.recall import RecallTools

        sources.append(RecallTools(parts.store, parts.root))
    sources += _external_sources(parts)
    if has_tools(settings, "notebook", "functions"):
        # These come last, so that a client's names never replace other tools.
        sources.append(NotebookFunctions(parts.client_calls))
    if has_tools(settings, "dispatch"):
        from agent_kernel.tools.base.dispatch import DispatchTools

        sources.append(DispatchTools(settings.dispatch_url, settings.dispatch_key_env, parts.egress))
    return sources


def _external_sources(parts: ToolDependencies) -> list[ToolSource]:
    """Return the sources of tools that other people wrote, or that connect to other machines."""
    settings, sources = parts.settings, list[ToolSource]()
    if has_tools(settings, "skills"):
        from agent_kernel.tools.skills.skill_tools import SkillTools

        sources.append(SkillTools(parts.skills, parts.sandbox, shell=has_tools(settings, "shell")))
    if has_tools(settings, "mcp"):
        from agent_kernel.tools.mcp.mcp_tools import McpTools

        sources.append(McpTools(settings.mcp_config, parts.egress, trust=parts.trust, version=__version__))
    if has_tools(settings, "web"):
        from agent_kernel.tools.web.web_tools import WebTools

        sources.append(WebTools(settings.web, parts.guard, parts.egress))
    if has_tools(settings, "functions"):
        from agent_kernel.tools.base.functions import FunctionTools, as_tool

        sources.append(FunctionTools([as_tool(parts.load(name)) for name in split_list(settings.functions)]))
    return sources
