"""For each route, the scopes of a lasting token (``agent_kernel.core.api_tokens``) that may call the route.

A key is a route below ``agent/v1``, or a method and a route, which takes precedence. The value is a set of scopes of
which a token needs one. ANY: every valid token may call the route. PERSON: no token may, whatever its scopes. A route
that is not listed needs the scope ``all``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jupyter_server.auth.identity import User

from agent_kernel.core.api_tokens import SCOPES
from agent_kernel.core.errors import Forbidden
from jupyter_ext.auth.callers import ScopedUser

ANY = frozenset(SCOPES)
PERSON: frozenset[str] = frozenset()
ALL = frozenset({"all"})
TURNS = frozenset({"turns"})
SESSIONS = frozenset({"sessions"})
FILES = frozenset({"files"})
SKILLS = frozenset({"skills"})
METRICS = frozenset({"metrics"})
OWN = TURNS | SESSIONS
"""Scopes for the routes of conversations. A token that has only the scope ``turns`` reaches only the conversations that
it created."""
READS = TURNS | FILES
"""Scopes for the routes that read files. ``turns`` is enough, so that whoever asked a question can read the files of
the answer."""

ROUTE_SCOPES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "chat/completions": TURNS,
        "responses": TURNS,
        "responses/input_tokens": TURNS,
        "responses/{id}": TURNS,
        "responses/{id}/cancel": TURNS,
        "responses/{id}/input_items": TURNS,
        "conversations": TURNS,
        "conversations/{id}": OWN,
        "conversations/{id}/items": OWN,
        "conversations/{id}/items/{id}": OWN,
        "messages": TURNS,
        "messages/count_tokens": TURNS,
        "turns": TURNS,
        "turns/{id}": OWN,
        "turns/{id}/events": OWN,
        "turns/{id}/outputs": OWN,
        "turns/{id}/cancel": TURNS,
        "turns/{id}/versions": OWN,
        "turns/{id}/claims": TURNS,
        "turns/{id}/claims/{id}": TURNS,
        "agent/permissions": OWN,
        "agent/approvals": TURNS,
        "agent/approvals/{id}": TURNS,
        "tools": TURNS,
        "usage": ANY,
        "socket": OWN,
        "search": SESSIONS,
        "search/access": SESSIONS,
        "sessions": SESSIONS,
        "sessions/import": SESSIONS,
        "sessions/{id}": OWN,
        "PATCH sessions/{id}": SESSIONS,
        "sessions/{id}/export": OWN,
        "sessions/{id}/items": OWN,
        "sessions/{id}/turns": OWN,
        "POST sessions/{id}/turns": TURNS,
        "sessions/{id}/usage": OWN,
        "sessions/{id}/blobs/{id}": OWN,
        "GET sessions/{id}/permissions": OWN,
        "sessions/{id}/permissions": ALL,  # revoking a denial permits more than before
        "sessions/{id}/clear-outputs": SESSIONS,
        "sessions/{id}/meanwhile": SESSIONS,
        "sessions/{id}/clear": SESSIONS,
        "sessions/{id}/compact": SESSIONS,
        "sessions/{id}/branches": SESSIONS,
        "sessions/{id}/branches/{id}": SESSIONS,
        "sessions/{id}/branch": SESSIONS,
        "sessions/{id}/fork": SESSIONS,
        "sessions/{id}/undo": SESSIONS,
        "sessions/{id}/variables": ALL,
        "sessions/{id}/variables/{id}": ALL,
        "sessions/{id}/rebuild": ALL,  # runs code
        "files": FILES,
        "files/{id}": READS,
        "DELETE files/{id}": FILES,
        "files/{id}/content": READS,
        "containers/{id}/files": READS,
        "containers/{id}/files/{id}": READS,
        "containers/{id}/files/{id}/content": READS,
        "skills": SKILLS,
        "skills/{id}": SKILLS,
        "skills/{id}/versions": SKILLS,
        "binding": ALL,
        "beside": ALL,
        "binding/variables": ALL,
        "binds/{id}": PERSON,
        "binds/{id}/confirm": PERSON,
        "mcp": ALL,  # reads notebooks
        "trust": PERSON,
        "GET trust": ALL,
        "models": ANY,
        "models/{id}": TURNS,
        "recommendation": ALL,
        "model_servers": PERSON,  # a server receives conversations and has a key
        "model_servers/probe": PERSON,
        "model_servers/{id}": PERSON,
        "models/{id}/pull": ALL,
        "engine": ALL,
        "engine/unload": ALL,
        "infill": ALL,
        "health": ANY,
        "metrics": METRICS,
        "openapi.json": ANY,
        "docs": ANY,
        "unknown": ANY,
    }
)


def check_shared_user(verb: str, route: str, user: User) -> None:
    """Check that a user who shares this server with others may use the route. Raises Forbidden."""
    if not isinstance(user, ScopedUser):
        return
    enough = scopes_of(verb, route)
    if not enough:
        raise Forbidden("Nobody may do this on a server that several users share.")
    if "all" not in user.scopes and user.scopes.isdisjoint(enough):
        raise Forbidden("Only an administrator may do this on a server that several users share.")


def scopes_of(verb: str, route: str) -> frozenset[str]:
    """Return the scopes of which a token needs one to call ``route`` with the HTTP method ``verb``. An empty set means
    that no token is accepted."""
    verb = "GET" if verb == "HEAD" else verb
    return ROUTE_SCOPES.get(f"{verb} {route}", ROUTE_SCOPES.get(route, ALL))
