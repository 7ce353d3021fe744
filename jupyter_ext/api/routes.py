"""The list of all routes of the extension, with the handler that serves each route."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tornado.web import RequestHandler

from jupyter_ext.api.http.lazy_handlers import defer_handler, load_class

PREFIX = "/agent/v1"
HANDLERS = __name__.rpartition(".")[0]
ID = r"([^/]+)"
ROUTES: list[tuple[str, str]] = [
    (rf"{PREFIX}/turns", "native.turns:TurnsHandler"),
    (rf"{PREFIX}/turns/{ID}", "native.turns:TurnHandler"),
    (rf"{PREFIX}/turns/{ID}/events", "native.turns:TurnEventsHandler"),
    (rf"{PREFIX}/turns/{ID}/outputs", "native.turn_outputs:TurnOutputsHandler"),
    (rf"{PREFIX}/turns/{ID}/cancel", "native.turns:TurnCancelHandler"),
    (rf"{PREFIX}/turns/{ID}/versions", "native.branches:TurnVersionsHandler"),
    (rf"{PREFIX}/turns/{ID}/claims", "native.turns:ClaimsHandler"),
    (rf"{PREFIX}/turns/{ID}/claims/{ID}", "native.turns:ClaimHandler"),
    (rf"{PREFIX}/agent/permissions", "native.approvals:PolicyHandler"),
    (rf"{PREFIX}/agent/approvals", "native.approvals:ApprovalsHandler"),
    (rf"{PREFIX}/agent/approvals/{ID}", "native.approvals:ApprovalHandler"),
    (rf"{PREFIX}/chat/completions", "chat_completions.handler:ChatCompletionsHandler"),
    (rf"{PREFIX}/responses", "responses.handler:ResponsesHandler"),
    (rf"{PREFIX}/responses/input_tokens", "responses.handler:InputTokensHandler"),
    (rf"{PREFIX}/responses/{ID}", "responses.handler:ResponseHandler"),
    (rf"{PREFIX}/responses/{ID}/cancel", "responses.handler:ResponseCancelHandler"),
    (rf"{PREFIX}/responses/{ID}/input_items", "responses.handler:InputItemsHandler"),
    (rf"{PREFIX}/conversations", "responses.conversations:ConversationsHandler"),
    (rf"{PREFIX}/conversations/{ID}", "responses.conversations:ConversationHandler"),
    (rf"{PREFIX}/conversations/{ID}/items", "responses.conversations:ConversationItemsHandler"),
    (rf"{PREFIX}/conversations/{ID}/items/{ID}", "responses.conversations:ConversationItemHandler"),
    (rf"{PREFIX}/messages", "anthropic.handler:MessagesHandler"),
    (rf"{PREFIX}/messages/count_tokens", "anthropic.handler:CountTokensHandler"),
    (rf"{PREFIX}/search", "native.search:SearchHandler"),
    (rf"{PREFIX}/search/access", "native.search:SearchAccessHandler"),
    (rf"{PREFIX}/sessions", "native.sessions:SessionsHandler"),
    (rf"{PREFIX}/sessions/import", "native.import_export:ImportHandler"),
    (rf"{PREFIX}/sessions/{ID}/export", "native.import_export:ExportHandler"),
    (rf"{PREFIX}/sessions/{ID}/clear-outputs", "native.import_export:ClearOutputsHandler"),
    (rf"{PREFIX}/sessions/{ID}", "native.sessions:SessionHandler"),
    (rf"{PREFIX}/sessions/{ID}/turns", "native.turns:SessionTurnsHandler"),
    (rf"{PREFIX}/sessions/{ID}/meanwhile", "native.away_summary:MeanwhileHandler"),
    (rf"{PREFIX}/sessions/{ID}/clear", "native.sessions:SessionClearHandler"),
    (rf"{PREFIX}/sessions/{ID}/compact", "native.summaries:CompactHandler"),
    (rf"{PREFIX}/sessions/{ID}/usage", "native.summaries:UsageHandler"),
    (rf"{PREFIX}/sessions/{ID}/variables", "native.sandbox_variables:VariablesHandler"),
    (rf"{PREFIX}/sessions/{ID}/variables/{ID}", "native.sandbox_variables:VariableHandler"),
    (rf"{PREFIX}/sessions/{ID}/rebuild", "native.sandbox_variables:RebuildHandler"),
    (rf"{PREFIX}/sessions/{ID}/permissions", "native.approvals:PermissionsHandler"),
    (rf"{PREFIX}/sessions/{ID}/items", "native.sessions:SessionItemsHandler"),
    (rf"{PREFIX}/sessions/{ID}/branches", "native.branches:BranchesHandler"),
    (rf"{PREFIX}/sessions/{ID}/branches/{ID}", "native.branches:BranchHandler"),
    (rf"{PREFIX}/sessions/{ID}/branch", "native.branches:CurrentBranchHandler"),
    (rf"{PREFIX}/sessions/{ID}/fork", "native.branches:ForkHandler"),
    (rf"{PREFIX}/sessions/{ID}/undo", "native.branches:UndoHandler"),
    (rf"{PREFIX}/sessions/{ID}/blobs/([0-9a-f]{{64}})", "native.sessions:BlobHandler"),
    (rf"{PREFIX}/files", "native.files:FilesHandler"),
    (rf"{PREFIX}/files/{ID}", "native.files:FileHandler"),
    (rf"{PREFIX}/files/{ID}/content", "native.files:FileContentHandler"),
    (rf"{PREFIX}/containers/{ID}/files", "native.files:ContainerFilesHandler"),
    (rf"{PREFIX}/containers/{ID}/files/{ID}", "native.files:ContainerFileHandler"),
    (rf"{PREFIX}/containers/{ID}/files/{ID}/content", "native.files:ContainerFileContentHandler"),
    (rf"{PREFIX}/binding", "native.binding:BindingHandler"),
    (rf"{PREFIX}/beside", "native.sidecar:BesideHandler"),
    (rf"{PREFIX}/binding/variables", "native.kernel_variables:KernelVariablesHandler"),
    (rf"{PREFIX}/binds/{ID}", "native.binding:BindHandler"),
    (rf"{PREFIX}/binds/{ID}/confirm", "native.binding:BindConfirmHandler"),
    (rf"{PREFIX}/mcp", "mcp.handler:McpHandler"),
    (rf"{PREFIX}/skills", "native.skills:SkillsHandler"),
    (rf"{PREFIX}/skills/{ID}", "native.skills:SkillHandler"),
    (rf"{PREFIX}/skills/{ID}/versions", "native.skills:SkillVersionsHandler"),
    (rf"{PREFIX}/trust", "native.trust:TrustHandler"),
    (rf"{PREFIX}/tools", "native.tools:ToolsHandler"),
    (rf"{PREFIX}/usage", "native.metrics:LimitsHandler"),
    (rf"{PREFIX}/models", "native.models:ModelsHandler"),
    (rf"{PREFIX}/model_servers", "native.model_servers:ModelServersHandler"),
    (rf"{PREFIX}/model_servers/probe", "native.model_servers:ModelServerProbeHandler"),
    (rf"{PREFIX}/model_servers/{ID}", "native.model_servers:ModelServerHandler"),
    (rf"{PREFIX}/recommendation", "native.models:RecommendationHandler"),
    (rf"{PREFIX}/models/{ID}/pull", "native.models:ModelPullHandler"),
    (rf"{PREFIX}/models/(.+)", "native.models:ModelHandler"),
    (rf"{PREFIX}/engine", "native.models:EngineHandler"),
    (rf"{PREFIX}/engine/unload", "native.models:EngineUnloadHandler"),
    (rf"{PREFIX}/infill", "native.models:InfillHandler"),
    (rf"{PREFIX}/health", "native.models:HealthHandler"),
    (rf"{PREFIX}/metrics", "native.metrics:MetricsHandler"),
    (rf"{PREFIX}/openapi.json", "openapi.handler:OpenApiHandler"),
    (rf"{PREFIX}/docs", "openapi.handler:DocsHandler"),
    (rf"{PREFIX}/socket", "native.socket:SocketHandler"),
]
"""Maps route patterns to the module below ``HANDLERS`` and the class of each handler, which the first request
imports."""
UNKNOWN = (rf"{PREFIX}(/.*)?", "unknown_route:UnknownHandler")
"""The route for unknown paths, which comes after all others."""
SOCKET = "native.socket:SocketHandler"
Rule: TypeAlias = tuple[str, type[RequestHandler], dict[str, str]]


def routes() -> list[tuple[str, type[Any]]]:
    """Return ``ROUTES`` with the handler classes; this imports all of them."""
    return [(pattern, load_class(f"{HANDLERS}.{handler}")) for pattern, handler in ROUTES]


def name_of(pattern: str) -> str:
    """Return the name of a route: its path below PREFIX, with ``{id}`` for each variable part."""
    return re.sub(r"\([^()]*\)", "{id}", pattern).removeprefix(PREFIX).lstrip("/")


def _rule(pattern: str, handler: str, route: str) -> Rule:
    return pattern, defer_handler(f"{HANDLERS}.{handler}", streams_body=handler != SOCKET), {"route": route}


RULES: list[Rule] = [_rule(rf"{PREFIX}(/responses/compact)", UNKNOWN[1], "unknown")]  # otherwise a response's id
RULES += [_rule(pattern, handler, name_of(pattern)) for pattern, handler in ROUTES]
RULES.append(_rule(*UNKNOWN, "unknown"))
"""The routes as rules of tornado; each handler knows the name of its route."""

MOUNT = "/v1"
"""Prefix under which clients of OpenAI's and Anthropic's APIs look for the routes."""
AT_THE_ROOT = ("/metrics", "/openapi.json")
"""Routes that are also served at the root of the server, where monitoring and API tools look for them."""


def mount(base_url: str) -> list[Rule]:
    """Return the routes for a standalone server: all of them below MOUNT, and those of AT_THE_ROOT at the root too."""
    base = base_url.rstrip("/")
    ours = [(route.removeprefix(PREFIX), handler, named) for route, handler, named in RULES]
    root = [rule for rule in ours if rule[0] in AT_THE_ROOT]
    below = [(MOUNT + route, handler, named) for route, handler, named in ours]
    probe = _rule("/health", "native.models:ProbeHandler", "health")
    return [(base + route, handler, named) for route, handler, named in [*root, probe, *below]]


def page(base_url: str) -> list[Rule]:
    """Return the routes of the web page of a standalone server. The page is at its root."""
    base = base_url.rstrip("/")
    files = [(rf"{base}/webapp/([0-9a-f]+)/([\w.]+)", "webapp.page:PageFileHandler")]
    root = [(rf"{base}/", "webapp.page:PageHandler"), *([(base, "webapp.page:SlashHandler")] if base else [])]
    return [
        (pattern, defer_handler(f"{HANDLERS}.{handler}", streams_body=False), {}) for pattern, handler in root + files
    ]
