"""Thin handlers: parse, call, reply. ``ROUTES`` is all that this extension serves."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tornado.web import RequestHandler

from jupyter_ext.deferred import deferred, loaded

PREFIX = "/agent/v1"
ID = r"([^/]+)"
ROUTES: list[tuple[str, str]] = [
    (rf"{PREFIX}/turns", "turns:TurnsHandler"),
    (rf"{PREFIX}/turns/{ID}", "turns:TurnHandler"),
    (rf"{PREFIX}/turns/{ID}/events", "turns:TurnEventsHandler"),
    (rf"{PREFIX}/turns/{ID}/outputs", "outputs:TurnOutputsHandler"),
    (rf"{PREFIX}/turns/{ID}/cancel", "turns:TurnCancelHandler"),
    (rf"{PREFIX}/turns/{ID}/versions", "branches:TurnVersionsHandler"),
    (rf"{PREFIX}/turns/{ID}/claims", "turns:ClaimsHandler"),
    (rf"{PREFIX}/turns/{ID}/claims/{ID}", "turns:ClaimHandler"),
    (rf"{PREFIX}/agent/permissions", "approvals:PolicyHandler"),
    (rf"{PREFIX}/agent/approvals", "approvals:ApprovalsHandler"),
    (rf"{PREFIX}/agent/approvals/{ID}", "approvals:ApprovalHandler"),
    (rf"{PREFIX}/chat/completions", "chat_completions:ChatCompletionsHandler"),
    (rf"{PREFIX}/responses", "responses:ResponsesHandler"),
    (rf"{PREFIX}/responses/{ID}", "responses:ResponseHandler"),
    (rf"{PREFIX}/responses/{ID}/cancel", "responses:ResponseCancelHandler"),
    (rf"{PREFIX}/responses/{ID}/input_items", "responses:InputItemsHandler"),
    (rf"{PREFIX}/messages", "messages:MessagesHandler"),
    (rf"{PREFIX}/messages/count_tokens", "messages:CountTokensHandler"),
    (rf"{PREFIX}/search", "search:SearchHandler"),
    (rf"{PREFIX}/search/access", "search:SearchAccessHandler"),
    (rf"{PREFIX}/sessions", "sessions:SessionsHandler"),
    (rf"{PREFIX}/sessions/import", "exchange:ImportHandler"),
    (rf"{PREFIX}/sessions/{ID}/export", "exchange:ExportHandler"),
    (rf"{PREFIX}/sessions/{ID}/clear-outputs", "exchange:ClearOutputsHandler"),
    (rf"{PREFIX}/sessions/{ID}", "sessions:SessionHandler"),
    (rf"{PREFIX}/sessions/{ID}/turns", "turns:SessionTurnsHandler"),
    (rf"{PREFIX}/sessions/{ID}/meanwhile", "meanwhile:MeanwhileHandler"),
    (rf"{PREFIX}/sessions/{ID}/clear", "sessions:SessionClearHandler"),
    (rf"{PREFIX}/sessions/{ID}/compact", "summaries:CompactHandler"),
    (rf"{PREFIX}/sessions/{ID}/usage", "summaries:UsageHandler"),
    (rf"{PREFIX}/sessions/{ID}/variables", "variables:VariablesHandler"),
    (rf"{PREFIX}/sessions/{ID}/variables/{ID}", "variables:VariableHandler"),
    (rf"{PREFIX}/sessions/{ID}/rebuild", "variables:RebuildHandler"),
    (rf"{PREFIX}/sessions/{ID}/permissions", "approvals:PermissionsHandler"),
    (rf"{PREFIX}/sessions/{ID}/items", "sessions:SessionItemsHandler"),
    (rf"{PREFIX}/sessions/{ID}/branches", "branches:BranchesHandler"),
    (rf"{PREFIX}/sessions/{ID}/branches/{ID}", "branches:BranchHandler"),
    (rf"{PREFIX}/sessions/{ID}/branch", "branches:CurrentBranchHandler"),
    (rf"{PREFIX}/sessions/{ID}/fork", "branches:ForkHandler"),
    (rf"{PREFIX}/sessions/{ID}/undo", "branches:UndoHandler"),
    (rf"{PREFIX}/sessions/{ID}/blobs/([0-9a-f]{{64}})", "sessions:BlobHandler"),
    (rf"{PREFIX}/files", "files:FilesHandler"),
    (rf"{PREFIX}/files/{ID}", "files:FileHandler"),
    (rf"{PREFIX}/files/{ID}/content", "files:FileContentHandler"),
    (rf"{PREFIX}/containers/{ID}/files", "files:ContainerFilesHandler"),
    (rf"{PREFIX}/containers/{ID}/files/{ID}", "files:ContainerFileHandler"),
    (rf"{PREFIX}/containers/{ID}/files/{ID}/content", "files:ContainerFileContentHandler"),
    (rf"{PREFIX}/binding", "binding:BindingHandler"),
    (rf"{PREFIX}/beside", "beside:BesideHandler"),
    (rf"{PREFIX}/binding/variables", "kernel_variables:KernelVariablesHandler"),
    (rf"{PREFIX}/binds/{ID}", "binding:BindHandler"),
    (rf"{PREFIX}/binds/{ID}/confirm", "binding:BindConfirmHandler"),
    (rf"{PREFIX}/mcp", "mcp:McpHandler"),
    (rf"{PREFIX}/skills", "skills:SkillsHandler"),
    (rf"{PREFIX}/skills/{ID}", "skills:SkillHandler"),
    (rf"{PREFIX}/skills/{ID}/versions", "skills:SkillVersionsHandler"),
    (rf"{PREFIX}/trust", "trust:TrustHandler"),
    (rf"{PREFIX}/tools", "tools:ToolsHandler"),
    (rf"{PREFIX}/usage", "usage:LimitsHandler"),
    (rf"{PREFIX}/models", "models:ModelsHandler"),
    (rf"{PREFIX}/models/{ID}/pull", "models:ModelPullHandler"),
    (rf"{PREFIX}/models/(.+)", "models:ModelHandler"),
    (rf"{PREFIX}/engine", "models:EngineHandler"),
    (rf"{PREFIX}/engine/unload", "models:EngineUnloadHandler"),
    (rf"{PREFIX}/health", "models:HealthHandler"),
    (rf"{PREFIX}/metrics", "metrics:MetricsHandler"),
    (rf"{PREFIX}/openapi.json", "openapi:OpenApiHandler"),
    (rf"{PREFIX}/docs", "openapi:DocsHandler"),
    (rf"{PREFIX}/socket", "socket:SocketHandler"),
]
"""Patterns, and the module here and class of their handlers, which are imported by their first request."""
UNKNOWN = (rf"{PREFIX}(/.*)?", "unknown:UnknownHandler")
"""Comes behind all others."""
SOCKET = "socket:SocketHandler"
Rule: TypeAlias = tuple[str, type[RequestHandler], dict[str, str]]


def routes() -> list[tuple[str, type[Any]]]:
    """``ROUTES`` with the classes themselves; all of them are imported."""
    return [(pattern, loaded(f"{__name__}.{handler}")) for pattern, handler in ROUTES]


def name_of(pattern: str) -> str:
    """Of a route: what is below PREFIX, with ``{id}`` for each part that varies."""
    return re.sub(r"\([^()]*\)", "{id}", pattern).removeprefix(PREFIX).lstrip("/")


def _rule(pattern: str, handler: str, route: str) -> Rule:
    return pattern, deferred(f"{__name__}.{handler}", streams_body=handler != SOCKET), {"route": route}


RULES: list[Rule] = [_rule(pattern, handler, name_of(pattern)) for pattern, handler in ROUTES]
RULES.append(_rule(*UNKNOWN, "unknown"))
"""As tornado takes them; a handler knows its route by its name."""

MOUNT = "/v1"
"""Where clients of OpenAI's and Anthropic's APIs look for a server that is nothing else."""
AT_THE_ROOT = ("/metrics", "/openapi.json")
"""Where programs of operators look, of the same server."""


def mounted(base_url: str) -> list[Rule]:
    """The same routes, for a server that has nothing else: at MOUNT, and some at its root."""
    base = base_url.rstrip("/")
    ours = [(route.removeprefix(PREFIX), handler, named) for route, handler, named in RULES]
    root = [rule for rule in ours if rule[0] in AT_THE_ROOT]
    below = [(MOUNT + route, handler, named) for route, handler, named in ours]
    probe = _rule("/health", "models:ProbeHandler", "health")
    return [(base + route, handler, named) for route, handler, named in [*root, probe, *below]]
