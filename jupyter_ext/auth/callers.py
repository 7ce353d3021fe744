"""Describes the caller of a request (a Jupyter user, one kernel with its own credential, or a program with a
long-lived API token), and determines the namespace whose sessions the caller sees."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_server.auth.identity import User
from jupyter_server.base.call_context import CallContext

from agent_kernel.core.api_tokens import ApiToken

if TYPE_CHECKING:
    from jupyter_ext.notebooks.kernels import Kernel

LOCAL = "local"
ALL = frozenset({"all"})
ANONYMOUS_USERNAME = re.compile(r"[0-9a-f]{32}")


@dataclass
class ScopedUser(User):
    """A user who shares this server with others. ``scopes`` are those of long-lived API tokens (``route_scopes``)."""

    scopes: frozenset[str] = frozenset()


@dataclass
class TokenUser(User):
    """A browser that logged in with the long-lived API token of this id: its requests are those of the token. Whether
    the token is still valid is checked at each request."""

    token_id: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. Exactly one of ``user``, ``kernel`` and ``token`` is set."""

    namespace: str
    user: User | None = None
    kernel: Kernel | None = None
    token: ApiToken | None = None

    @property
    def scopes(self) -> frozenset[str]:
        if self.token is not None:
            return self.token.scopes
        return self.user.scopes if isinstance(self.user, ScopedUser) else ALL

    @property
    def is_confined(self) -> bool:
        """Whether the caller is a program with fewer rights than its user, or a user who shares the server with
        others: no notebooks, no kernels, and no approvals of turns that others started."""
        return "all" not in self.scopes

    @property
    def started_by(self) -> str:
        """The name that is recorded in a turn for the caller that started it; empty for a person, and for a program
        with all rights of a person."""
        if self.kernel is not None:
            return self.kernel.id
        return f"token {self.token.id}" if self.token is not None and self.is_confined else ""


def subject(caller: Caller) -> str:
    """Return a name for the owner of the caller's credential within the namespace: a kernel, a program, or the user. A
    program is identified by the name of its token, which stays the same when the token is renewed."""
    if caller.token is not None:
        return f"token {caller.token.name}"
    return f"kernel {caller.kernel.id}" if caller.kernel else "user"


def namespace_of(configured: str, user: User | None, env: Mapping[str, str] = os.environ) -> str:
    """Return the configured namespace, else the name of a user known to the identity provider, else JUPYTERHUB_USER,
    else ``local``."""
    if configured:
        return configured
    if user is not None and not is_anonymous(user):
        return user.username
    return env.get("JUPYTERHUB_USER") or LOCAL


def current_namespace(configured: str) -> str:
    """Return the namespace of the request that is being served; outside of a request, the default namespace."""
    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    if (caller := getattr(handler, "caller", None)) is not None:
        return str(caller.namespace)
    user = getattr(handler, "current_user", None)
    return namespace_of(configured, user if isinstance(user, User) else None)


def is_anonymous(user: User) -> bool:
    """Return whether jupyter_server invented the user: it gives every login by token or password a new random name."""
    return bool(ANONYMOUS_USERNAME.fullmatch(user.username)) and (user.name or "").startswith("Anonymous ")
