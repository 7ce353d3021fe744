"""Thin handlers: parse, call, reply. ``ROUTES`` is all that this extension serves."""

from __future__ import annotations

import re
from typing import TypeAlias

from jupyter_ext.handlers.approvals import ApprovalHandler, ApprovalsHandler, PermissionsHandler, PolicyHandler
from jupyter_ext.handlers.base import AgentHandler
from jupyter_ext.handlers.beside import BesideHandler
from jupyter_ext.handlers.binding import BindConfirmHandler, BindHandler, BindingHandler
from jupyter_ext.handlers.branches import (
    BranchesHandler,
    BranchHandler,
    CurrentBranchHandler,
    ForkHandler,
    TurnVersionsHandler,
    UndoHandler,
)
from jupyter_ext.handlers.chat_completions import ChatCompletionsHandler
from jupyter_ext.handlers.exchange import ClearOutputsHandler, ExportHandler, ImportHandler
from jupyter_ext.handlers.files import (
    ContainerFileContentHandler,
    ContainerFileHandler,
    ContainerFilesHandler,
    FileContentHandler,
    FileHandler,
    FilesHandler,
)
from jupyter_ext.handlers.kernel_variables import KernelVariablesHandler
from jupyter_ext.handlers.mcp import McpHandler
from jupyter_ext.handlers.meanwhile import MeanwhileHandler
from jupyter_ext.handlers.messages import CountTokensHandler, MessagesHandler
from jupyter_ext.handlers.metrics import MetricsHandler
from jupyter_ext.handlers.models import (
    EngineHandler,
    EngineUnloadHandler,
    HealthHandler,
    ModelHandler,
    ModelPullHandler,
    ModelsHandler,
    ProbeHandler,
)
from jupyter_ext.handlers.openapi import DocsHandler, OpenApiHandler
from jupyter_ext.handlers.outputs import TurnOutputsHandler
from jupyter_ext.handlers.responses import (
    InputItemsHandler,
    ResponseCancelHandler,
    ResponseHandler,
    ResponsesHandler,
)
from jupyter_ext.handlers.search import SearchAccessHandler, SearchHandler
from jupyter_ext.handlers.sessions import (
    BlobHandler,
    SessionClearHandler,
    SessionHandler,
    SessionItemsHandler,
    SessionsHandler,
)
from jupyter_ext.handlers.skills import SkillHandler, SkillsHandler, SkillVersionsHandler
from jupyter_ext.handlers.socket import SocketHandler
from jupyter_ext.handlers.summaries import CompactHandler, UsageHandler
from jupyter_ext.handlers.tools import ToolsHandler
from jupyter_ext.handlers.trust import TrustHandler
from jupyter_ext.handlers.turns import (
    ClaimHandler,
    ClaimsHandler,
    SessionTurnsHandler,
    TurnCancelHandler,
    TurnEventsHandler,
    TurnHandler,
    TurnsHandler,
)
from jupyter_ext.handlers.unknown import UnknownHandler
from jupyter_ext.handlers.usage import LimitsHandler
from jupyter_ext.handlers.variables import RebuildHandler, VariableHandler, VariablesHandler

PREFIX = "/agent/v1"
ID = r"([^/]+)"
ROUTES: list[tuple[str, type[AgentHandler] | type[SocketHandler]]] = [
    (rf"{PREFIX}/turns", TurnsHandler),
    (rf"{PREFIX}/turns/{ID}", TurnHandler),
    (rf"{PREFIX}/turns/{ID}/events", TurnEventsHandler),
    (rf"{PREFIX}/turns/{ID}/outputs", TurnOutputsHandler),
    (rf"{PREFIX}/turns/{ID}/cancel", TurnCancelHandler),
    (rf"{PREFIX}/turns/{ID}/versions", TurnVersionsHandler),
    (rf"{PREFIX}/turns/{ID}/claims", ClaimsHandler),
    (rf"{PREFIX}/turns/{ID}/claims/{ID}", ClaimHandler),
    (rf"{PREFIX}/agent/permissions", PolicyHandler),
    (rf"{PREFIX}/agent/approvals", ApprovalsHandler),
    (rf"{PREFIX}/agent/approvals/{ID}", ApprovalHandler),
    (rf"{PREFIX}/chat/completions", ChatCompletionsHandler),
    (rf"{PREFIX}/responses", ResponsesHandler),
    (rf"{PREFIX}/responses/{ID}", ResponseHandler),
    (rf"{PREFIX}/responses/{ID}/cancel", ResponseCancelHandler),
    (rf"{PREFIX}/responses/{ID}/input_items", InputItemsHandler),
    (rf"{PREFIX}/messages", MessagesHandler),
    (rf"{PREFIX}/messages/count_tokens", CountTokensHandler),
    (rf"{PREFIX}/search", SearchHandler),
    (rf"{PREFIX}/search/access", SearchAccessHandler),
    (rf"{PREFIX}/sessions", SessionsHandler),
    (rf"{PREFIX}/sessions/import", ImportHandler),
    (rf"{PREFIX}/sessions/{ID}/export", ExportHandler),
    (rf"{PREFIX}/sessions/{ID}/clear-outputs", ClearOutputsHandler),
    (rf"{PREFIX}/sessions/{ID}", SessionHandler),
    (rf"{PREFIX}/sessions/{ID}/turns", SessionTurnsHandler),
    (rf"{PREFIX}/sessions/{ID}/meanwhile", MeanwhileHandler),
    (rf"{PREFIX}/sessions/{ID}/clear", SessionClearHandler),
    (rf"{PREFIX}/sessions/{ID}/compact", CompactHandler),
    (rf"{PREFIX}/sessions/{ID}/usage", UsageHandler),
    (rf"{PREFIX}/sessions/{ID}/variables", VariablesHandler),
    (rf"{PREFIX}/sessions/{ID}/variables/{ID}", VariableHandler),
    (rf"{PREFIX}/sessions/{ID}/rebuild", RebuildHandler),
    (rf"{PREFIX}/sessions/{ID}/permissions", PermissionsHandler),
    (rf"{PREFIX}/sessions/{ID}/items", SessionItemsHandler),
    (rf"{PREFIX}/sessions/{ID}/branches", BranchesHandler),
    (rf"{PREFIX}/sessions/{ID}/branches/{ID}", BranchHandler),
    (rf"{PREFIX}/sessions/{ID}/branch", CurrentBranchHandler),
    (rf"{PREFIX}/sessions/{ID}/fork", ForkHandler),
    (rf"{PREFIX}/sessions/{ID}/undo", UndoHandler),
    (rf"{PREFIX}/sessions/{ID}/blobs/([0-9a-f]{{64}})", BlobHandler),
    (rf"{PREFIX}/files", FilesHandler),
    (rf"{PREFIX}/files/{ID}", FileHandler),
    (rf"{PREFIX}/files/{ID}/content", FileContentHandler),
    (rf"{PREFIX}/containers/{ID}/files", ContainerFilesHandler),
    (rf"{PREFIX}/containers/{ID}/files/{ID}", ContainerFileHandler),
    (rf"{PREFIX}/containers/{ID}/files/{ID}/content", ContainerFileContentHandler),
    (rf"{PREFIX}/binding", BindingHandler),
    (rf"{PREFIX}/beside", BesideHandler),
    (rf"{PREFIX}/binding/variables", KernelVariablesHandler),
    (rf"{PREFIX}/binds/{ID}", BindHandler),
    (rf"{PREFIX}/binds/{ID}/confirm", BindConfirmHandler),
    (rf"{PREFIX}/mcp", McpHandler),
    (rf"{PREFIX}/skills", SkillsHandler),
    (rf"{PREFIX}/skills/{ID}", SkillHandler),
    (rf"{PREFIX}/skills/{ID}/versions", SkillVersionsHandler),
    (rf"{PREFIX}/trust", TrustHandler),
    (rf"{PREFIX}/tools", ToolsHandler),
    (rf"{PREFIX}/usage", LimitsHandler),
    (rf"{PREFIX}/models", ModelsHandler),
    (rf"{PREFIX}/models/{ID}/pull", ModelPullHandler),
    (rf"{PREFIX}/models/(.+)", ModelHandler),
    (rf"{PREFIX}/engine", EngineHandler),
    (rf"{PREFIX}/engine/unload", EngineUnloadHandler),
    (rf"{PREFIX}/health", HealthHandler),
    (rf"{PREFIX}/metrics", MetricsHandler),
    (rf"{PREFIX}/openapi.json", OpenApiHandler),
    (rf"{PREFIX}/docs", DocsHandler),
    (rf"{PREFIX}/socket", SocketHandler),
]
OpenApiHandler.routes = ROUTES
UNKNOWN = (rf"{PREFIX}(/.*)?", UnknownHandler)
"""Comes behind all others."""
Rule: TypeAlias = tuple[str, type[AgentHandler] | type[SocketHandler], dict[str, str]]


def name_of(pattern: str) -> str:
    """Of a route: what is below PREFIX, with ``{id}`` for each part that varies."""
    return re.sub(r"\([^()]*\)", "{id}", pattern).removeprefix(PREFIX).lstrip("/")


RULES: list[Rule] = [(pattern, handler, {"route": name_of(pattern)}) for pattern, handler in ROUTES]
RULES.append((*UNKNOWN, {"route": "unknown"}))
"""As tornado takes them; a handler knows its route by its name."""

MOUNT = "/v1"
"""Where clients of OpenAI's and Anthropic's APIs look for a server that is nothing else."""
AT_THE_ROOT = ("/metrics", "/openapi.json")
"""Where programs of operators look, of the same server."""


def mounted(base_url: str) -> list[Rule]:
    """The same routes, for a server that has nothing else: at MOUNT, and some at its root."""
    base = base_url.rstrip("/")
    routes = [(route.removeprefix(PREFIX), handler, named) for route, handler, named in RULES]
    root = [rule for rule in routes if rule[0] in AT_THE_ROOT]
    below = [(MOUNT + route, handler, named) for route, handler, named in routes]
    probe: Rule = ("/health", ProbeHandler, {"route": "health"})
    return [(base + route, handler, named) for route, handler, named in [*root, probe, *below]]
