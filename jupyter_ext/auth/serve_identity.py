"""Logs browsers in to ``agent-kernel serve``: by the server's token, by a long-lived API token, or by the link that the
command prints when it starts. The browser gets a signed cookie, which contains no token."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable

from jupyter_server.auth.identity import PasswordIdentityProvider, User
from tornado.web import RequestHandler
from traitlets import default

from agent_kernel.core.api_tokens import ApiToken
from jupyter_ext.auth.callers import TokenUser
from jupyter_ext.auth.request_token import header_token

LINK_S = 3_600.0
LONG = 32
"""Minimum number of characters of a token that nobody can guess, not even with many attempts on a machine that has a
signed cookie."""


class ServeIdentityProvider(PasswordIdentityProvider):
    """Jupyter's login, extended by browsers that log in with a long-lived API token: their cookie contains the token's
    id."""

    @default("cookie_options")
    def _cookie_options(self) -> dict[str, str]:
        return {"samesite": "Lax"}

    def get_token(self, handler: RequestHandler) -> str | None:
        """Return the token in the header of a request. A token in the URL is ignored, as on every route of the API."""
        return header_token(handler.request.headers)

    def user_to_cookie(self, user: User) -> str:
        """Return the content of the login cookie, which tornado signs."""
        return json.dumps({"token": user.token_id}) if isinstance(user, TokenUser) else super().user_to_cookie(user)

    def user_from_cookie(self, cookie_value: str) -> User | None:
        token = json.loads(cookie_value).get("token")
        return super().user_from_cookie(cookie_value) if token is None else user_of_token(str(token))


def user_of_token(id: str) -> TokenUser:
    return TokenUser(username=f"token {id}", token_id=id)


def may_converse(token: ApiToken) -> bool:
    """Return whether a browser may log in with the token. The web page lists conversations and starts turns, so the
    token needs the scopes for both."""
    return token.has_any_scope(("turns",)) and token.has_any_scope(("sessions",))


def cookie_secret(token: str) -> bytes:
    """Return the key that signs the login cookies of a server with this token. With a long token, logins stay valid
    when the server starts again, and are valid on all servers with the same token. With a token of fewer than LONG
    characters, the key is random and logins end with the server: otherwise, whoever has a signed cookie could test
    guesses of the token without sending requests to the server."""
    if len(token) < LONG:
        return secrets.token_bytes(32)
    return hmac.digest(token.encode(), b"agent-kernel login cookies", "sha256")


class LoginLink:
    """A secret that logs in one browser, once, within an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.code = secrets.token_urlsafe(32)
        self._clock = clock
        self._until = clock() + LINK_S

    def use(self, code: str) -> bool:
        """Return whether the code is the right one and still valid. It is valid only once."""
        valid = self._clock() < self._until and hmac.compare_digest(code.encode(), self.code.encode())
        if valid:
            self._until = 0.0
        return valid
