"""Defines which scopes a long-lived API token (``agent_kernel.core.api_tokens``) needs for a route. The table of the
routes (``jupyter_ext.api.routes``) names the scopes of each route.

A token needs one of the scopes of a set. ANY: every valid token may call the route. PERSON: no token may, whatever its
scopes. ALL: only a token with the scope ``all`` may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class RouteScopes:
    """The scopes for a route, and those for single HTTP methods, which take precedence."""

    scopes: frozenset[str] = ALL
    by_verb: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def for_verb(self, verb: str) -> frozenset[str]:
        """Return the scopes of which a token needs one for the HTTP method ``verb``. An empty set means that no token
        is accepted."""
        return self.by_verb.get("GET" if verb == "HEAD" else verb, self.scopes)


def check_shared_user(enough: frozenset[str], user: User) -> None:
    """Check that a user who shares this server with others may make a request for which a token needs one of the scopes
    ``enough``. Raises Forbidden."""
    if not isinstance(user, ScopedUser):
        return
    if not enough:
        raise Forbidden("No user may make this request on a server that several users share.")
    if "all" not in user.scopes and user.scopes.isdisjoint(enough):
        raise Forbidden("Only an administrator may make this request on a server that several users share.")
