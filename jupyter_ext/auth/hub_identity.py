"""Users of a JupyterHub, identified by the hub's tokens: the only login of ``agent-kernel serve --hub``.

A request is a user's if its ``Authorization`` or ``x-api-key`` header has a token that the hub gave out for this user,
such as the JUPYTERHUB_API_TOKEN of the user's own server. Cookies and URLs are never read, so that a page of another
user, which shares the hub's origin, cannot send requests with this user's login.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from tornado.web import HTTPError, RequestHandler
from traitlets import Int

from agent_kernel.core.errors import Forbidden, HubUnavailable
from jupyter_ext.auth import request_token
from jupyter_ext.auth.callers import LOCAL, ScopedUser

ANSWER_S = 10.0
"""Maximum number of seconds that the hub may take to identify a token."""
USER_SCOPES = frozenset({"turns", "sessions", "files", "skills"})
"""The rights of each user, as scopes of long-lived API tokens."""
ADMIN_SCOPES = frozenset({"all"})
ADMINISTERS = "admin:services"
"""The scope of JupyterHub that gives its holders ADMIN_SCOPES. The hub's role ``admin`` includes this scope. The field
``admin`` of a user would be wrong: it is true for every token of an administrator, whatever the token's scopes."""


class HubIdentityProvider(IdentityProvider):
    """Identifies users by asking the hub about the token of a request. The server accepts no other credential: it has
    no token of its own, no password and no cookie."""

    cache_s = Int(
        30,
        min=1,
        max=300,
        config=True,
        help="Seconds for which an answer of the hub is reused; a revoked token may be accepted during this time.",
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # The library takes a second to load, and only this login needs it.
        from jupyterhub.services.auth import HubAuth

        self._hub: Any = HubAuth(parent=self, cache_max_age=self.cache_s)

    async def get_user(self, handler: RequestHandler) -> User | None:
        """Return the user of the request's token; None if there is no token that the hub knows.

        Raises HubUnavailable, and Forbidden for a token that does not give access to this service.
        """
        token = request_token.header_token(handler.request.headers)
        model = await self._ask(token) if token else None
        if model is None:
            return None
        user = self._admit(model)
        handler._token_authenticated = True  # type: ignore[attr-defined]  # where the base class records it
        return user

    async def _ask(self, token: str) -> dict[str, Any] | None:
        """Return the hub's description of the token's owner; None for a token that the hub does not know. Raises
        HubUnavailable."""
        try:
            async with asyncio.timeout(ANSWER_S):
                model: dict[str, Any] | None = await self._hub.user_for_token(token, sync=False)
        except (HTTPError, OSError, ValueError, TimeoutError) as error:
            reason = str(error) or f"no answer within {ANSWER_S:.0f} s"
            self.log.error("The hub at %s did not identify a token: %s", self._hub.api_url, reason)
            raise HubUnavailable(
                "The JupyterHub of this server does not answer, so nobody can be identified.",
                hint="Ask again in a moment.",
                details={"retry_after_s": 5},
            ) from None
        return model

    def _admit(self, model: dict[str, Any]) -> ScopedUser:
        """Return the user that the hub describes in ``model``. Raises Forbidden for a service of the hub, for a token
        without access to this server, and for a reserved user name."""
        if model.get("kind") != "user" or not model.get("name"):
            raise Forbidden("This server is for users of the JupyterHub, not for its services.")
        if not self._hub.check_scopes(self._hub.access_scopes, model):
            needed = f"access:services!service={os.environ.get('JUPYTERHUB_SERVICE_NAME', '')}"
            raise Forbidden(
                "This token of the JupyterHub does not give access to this service.",
                hint=f"An administrator of the hub can grant the scope {needed} to the user, or to the token.",
            )
        name = str(model["name"])
        if name == LOCAL:
            raise Forbidden(f"The user name {LOCAL} is reserved for the operator of this server.")
        administers = self._hub.check_scopes({ADMINISTERS}, model)
        return ScopedUser(username=name, name=name, scopes=ADMIN_SCOPES if administers else USER_SCOPES)

    def get_handlers(self) -> list[tuple[str, object]]:
        """Return no routes: nobody logs in or out here."""
        return []

    def validate_security(self, app: Any, ssl_options: dict[str, Any] | None = None) -> None:
        """Do nothing: the base class warns about servers without a token, which this server does not need."""
