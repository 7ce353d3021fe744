"""The list of all routes of the extension, with the handler that serves each route, and the scopes of the tokens that
may call it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from tornado.web import RequestHandler

from jupyter_ext.api.http.lazy_handlers import defer_handler, load_class
from jupyter_ext.auth.route_scopes import (
    ALL,
    ANY,
    FILES,
    METRICS,
    OWN,
    PERSON,
    READS,
    SESSIONS,
    SKILLS,
    TURNS,
    RouteScopes,
)

PREFIX = "/agent/v1"
HANDLERS = __name__.rpartition(".")[0]
ID = r"([^/]+)"
SOCKET = "native.socket:SocketHandler"
Rule: TypeAlias = tuple[str, type[RequestHandler], dict[str, Any]]
MOUNT = "/v1"
"""Prefix under which clients of OpenAI's and Anthropic's APIs look for the routes."""
AT_THE_ROOT = ("/metrics", "/openapi.json")
"""Routes that are also served at the root of the server, where monitoring and API tools look for them."""


class Route(NamedTuple):
    """A pattern of URLs, the module below ``HANDLERS`` and the class of the handler, which the first request imports,
    and the scopes for all methods and for single ones."""

    pattern: str
    handler: str
    scopes: frozenset[str]
    by_verb: Mapping[str, frozenset[str]] = MappingProxyType({})


ROUTES = [
    Route(rf"{PREFIX}/turns", "native.turns:TurnsHandler", TURNS),
    Route(rf"{PREFIX}/turns/{ID}", "native.turns:TurnHandler", OWN),
    Route(rf"{PREFIX}/turns/{ID}/events", "native.turns:TurnEventsHandler", OWN),
    Route(rf"{PREFIX}/turns/{ID}/outputs", "native.turns:TurnOutputsHandler", OWN),
    Route(rf"{PREFIX}/turns/{ID}/cancel", "native.turns:TurnCancelHandler", TURNS),
    Route(rf"{PREFIX}/turns/{ID}/versions", "native.branches:TurnVersionsHandler", OWN),
    Route(rf"{PREFIX}/turns/{ID}/claims", "native.turns:ClaimsHandler", TURNS),
    Route(rf"{PREFIX}/turns/{ID}/claims/{ID}", "native.turns:ClaimHandler", TURNS),
    Route(rf"{PREFIX}/agent/permissions", "native.approvals:PolicyHandler", OWN),
    Route(rf"{PREFIX}/agent/approvals", "native.approvals:ApprovalsHandler", TURNS),
    Route(rf"{PREFIX}/agent/approvals/{ID}", "native.approvals:ApprovalHandler", TURNS),
    Route(rf"{PREFIX}/chat/completions", "chat_completions.handler:ChatCompletionsHandler", TURNS),
    Route(rf"{PREFIX}/responses", "responses.handler:ResponsesHandler", TURNS),
    Route(rf"{PREFIX}/responses/input_tokens", "responses.handler:InputTokensHandler", TURNS),
    Route(rf"{PREFIX}/responses/{ID}", "responses.handler:ResponseHandler", TURNS),
    Route(rf"{PREFIX}/responses/{ID}/cancel", "responses.handler:ResponseCancelHandler", TURNS),
    Route(rf"{PREFIX}/responses/{ID}/input_items", "responses.handler:InputItemsHandler", TURNS),
    Route(rf"{PREFIX}/conversations", "responses.conversations:ConversationsHandler", TURNS),
    Route(rf"{PREFIX}/conversations/{ID}", "responses.conversations:ConversationHandler", OWN),
    Route(rf"{PREFIX}/conversations/{ID}/items", "responses.conversations:ConversationItemsHandler", OWN),
    Route(rf"{PREFIX}/conversations/{ID}/items/{ID}", "responses.conversations:ConversationItemHandler", OWN),
    Route(rf"{PREFIX}/messages", "anthropic.handler:MessagesHandler", TURNS),
    Route(rf"{PREFIX}/messages/count_tokens", "anthropic.handler:CountTokensHandler", TURNS),
    Route(rf"{PREFIX}/search", "native.search:SearchHandler", SESSIONS),
    Route(rf"{PREFIX}/search/access", "native.search:SearchAccessHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions", "native.sessions:SessionsHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/import", "native.import_export:ImportHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/export", "native.import_export:ExportHandler", OWN),
    Route(rf"{PREFIX}/sessions/{ID}/clear-outputs", "native.import_export:ClearOutputsHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}", "native.sessions:SessionHandler", OWN, {"PATCH": SESSIONS}),
    Route(rf"{PREFIX}/sessions/{ID}/turns", "native.turns:SessionTurnsHandler", OWN, {"POST": TURNS}),
    Route(rf"{PREFIX}/sessions/{ID}/meanwhile", "native.away_summary:MeanwhileHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/clear", "native.sessions:SessionClearHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/compact", "native.summaries:CompactHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/usage", "native.summaries:UsageHandler", OWN),
    Route(rf"{PREFIX}/sessions/{ID}/variables", "native.sandbox_variables:VariablesHandler", ALL),
    Route(rf"{PREFIX}/sessions/{ID}/variables/{ID}", "native.sandbox_variables:VariableHandler", ALL),
    Route(rf"{PREFIX}/sessions/{ID}/rebuild", "native.sandbox_variables:RebuildHandler", ALL),  # this route runs code
    Route(
        rf"{PREFIX}/sessions/{ID}/permissions", "native.approvals:PermissionsHandler", ALL, {"GET": OWN}
    ),  # revoking a denial permits more than before
    Route(rf"{PREFIX}/sessions/{ID}/items", "native.sessions:SessionItemsHandler", OWN),
    Route(rf"{PREFIX}/sessions/{ID}/branches", "native.branches:BranchesHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/branches/{ID}", "native.branches:BranchHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/branch", "native.branches:CurrentBranchHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/fork", "native.branches:ForkHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/undo", "native.branches:UndoHandler", SESSIONS),
    Route(rf"{PREFIX}/sessions/{ID}/blobs/([0-9a-f]{{64}})", "native.sessions:BlobHandler", OWN),
    Route(rf"{PREFIX}/files", "native.files:FilesHandler", FILES),
    Route(rf"{PREFIX}/files/{ID}", "native.files:FileHandler", READS, {"DELETE": FILES}),
    Route(rf"{PREFIX}/files/{ID}/content", "native.files:FileContentHandler", READS),
    Route(rf"{PREFIX}/containers/{ID}/files", "native.files:ContainerFilesHandler", READS),
    Route(rf"{PREFIX}/containers/{ID}/files/{ID}", "native.files:ContainerFileHandler", READS),
    Route(rf"{PREFIX}/containers/{ID}/files/{ID}/content", "native.files:ContainerFileContentHandler", READS),
    Route(rf"{PREFIX}/binding", "native.binding:BindingHandler", ALL),
    Route(rf"{PREFIX}/beside", "native.sidecar:BesideHandler", ALL),
    Route(rf"{PREFIX}/binding/variables", "native.kernel_variables:KernelVariablesHandler", ALL),
    Route(rf"{PREFIX}/binds/{ID}", "native.binding:BindHandler", PERSON),
    Route(rf"{PREFIX}/binds/{ID}/confirm", "native.binding:BindConfirmHandler", PERSON),
    Route(rf"{PREFIX}/mcp", "mcp.handler:McpHandler", ALL),  # this route reads notebooks
    Route(rf"{PREFIX}/skills", "native.skills:SkillsHandler", SKILLS),
    Route(rf"{PREFIX}/skills/{ID}", "native.skills:SkillHandler", SKILLS),
    Route(rf"{PREFIX}/skills/{ID}/versions", "native.skills:SkillVersionsHandler", SKILLS),
    Route(rf"{PREFIX}/trust", "native.trust:TrustHandler", PERSON, {"GET": ALL}),
    Route(rf"{PREFIX}/tools", "native.tools:ToolsHandler", TURNS),
    Route(rf"{PREFIX}/usage", "native.metrics:LimitsHandler", ANY),
    Route(rf"{PREFIX}/models", "native.models:ModelsHandler", ANY),
    Route(
        rf"{PREFIX}/model_servers", "native.model_servers:ModelServersHandler", PERSON
    ),  # a server receives conversations and has a key
    Route(rf"{PREFIX}/model_servers/probe", "native.model_servers:ModelServerProbeHandler", PERSON),
    Route(rf"{PREFIX}/model_servers/{ID}", "native.model_servers:ModelServerHandler", PERSON),
    Route(rf"{PREFIX}/recommendation", "native.models:RecommendationHandler", ALL),
    Route(rf"{PREFIX}/models/{ID}/pull", "native.models:ModelPullHandler", ALL),
    Route(rf"{PREFIX}/models/(.+)", "native.models:ModelHandler", TURNS),
    Route(rf"{PREFIX}/engine", "native.models:EngineHandler", ALL),
    Route(rf"{PREFIX}/engine/unload", "native.models:EngineUnloadHandler", ALL),
    Route(rf"{PREFIX}/infill", "native.models:InfillHandler", ALL),
    Route(rf"{PREFIX}/health", "native.health:HealthHandler", ANY),
    Route(rf"{PREFIX}/metrics", "native.metrics:MetricsHandler", METRICS),
    Route(rf"{PREFIX}/openapi.json", "openapi.handler:OpenApiHandler", ANY),
    Route(rf"{PREFIX}/docs", "openapi.handler:DocsHandler", ANY),
    Route(rf"{PREFIX}/socket", "native.socket:SocketHandler", OWN),
]
UNKNOWN = Route(rf"{PREFIX}(/.*)?", "unknown_route:UnknownHandler", ANY)
"""The route for unknown paths, which comes after all others."""


def routes() -> list[tuple[str, type[Any]]]:
    """Return ``ROUTES`` with the handler classes; this imports all of them."""
    return [(route.pattern, load_class(f"{HANDLERS}.{route.handler}")) for route in ROUTES]


def name_of(pattern: str) -> str:
    """Return the name of a route: its path below PREFIX, with ``{id}`` for each variable part."""
    return re.sub(r"\([^()]*\)", "{id}", pattern).removeprefix(PREFIX).lstrip("/")


def _rule(route: Route, name: str) -> Rule:
    handler = defer_handler(f"{HANDLERS}.{route.handler}", streams_body=route.handler != SOCKET)
    return route.pattern, handler, {"route": name, "scopes": RouteScopes(route.scopes, route.by_verb)}


# Without this rule, the path ``responses/compact`` would be read as the route of the response with the id ``compact``.
RULES = [_rule(UNKNOWN._replace(pattern=rf"{PREFIX}(/responses/compact)"), "unknown")]
RULES += [_rule(route, name_of(route.pattern)) for route in ROUTES]
RULES.append(_rule(UNKNOWN, "unknown"))
"""The routes as rules of tornado; each handler knows the name and the scopes of its route."""


def mount(base_url: str) -> list[Rule]:
    """Return the routes for a standalone server: all of them below MOUNT, and those of AT_THE_ROOT at the root too."""
    base = base_url.rstrip("/")
    ours = [(route.removeprefix(PREFIX), handler, named) for route, handler, named in RULES]
    root = [rule for rule in ours if rule[0] in AT_THE_ROOT]
    below = [(MOUNT + route, handler, named) for route, handler, named in ours]
    probe = _rule(Route("/health", "native.health:ProbeHandler", ANY), "health")
    return [(base + route, handler, named) for route, handler, named in [*root, probe, *below]]


def page(base_url: str) -> list[Rule]:
    """Return the routes of the web page of a standalone server. The page is at its root."""
    base = base_url.rstrip("/")
    files = [(rf"{base}/webapp/([0-9a-f]+)/([\w.]+)", "webapp.page:PageFileHandler")]
    root = [(rf"{base}/", "webapp.page:PageHandler"), *([(base, "webapp.page:SlashHandler")] if base else [])]
    return [
        (pattern, defer_handler(f"{HANDLERS}.{handler}", streams_body=False), {}) for pattern, handler in root + files
    ]
