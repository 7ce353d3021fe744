"""Handles the login form of ``agent-kernel serve``: a person logs in with the server's token, as everywhere in Jupyter,
or with a long-lived API token of a person."""

from __future__ import annotations

import asyncio

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.login import LoginFormHandler

from agent_kernel.core.api_tokens import ApiTokenStore, looks_like_token
from agent_kernel.core.errors import TokenInvalid
from jupyter_ext.auth.serve_identity import may_converse, user_of_token
from jupyter_ext.services import SETTING, Services


class LoginHandler(LoginFormHandler):
    @property
    def tokens(self) -> ApiTokenStore:
        services: Services = self.settings[SETTING]
        return services.state.tokens

    @allow_unauthenticated
    async def post(self) -> None:
        """Set the login cookie and redirect. 401 for a wrong token, 403 for a token whose scopes do not include
        conversations."""
        text = self.get_body_argument("password", "")
        if not looks_like_token(text):
            super().post()  # type: ignore[no-untyped-call]  # Jupyter's
            return
        try:
            token = await asyncio.to_thread(self.tokens.holder, text)
        except TokenInvalid as error:
            self._refuse(401, str(error))
            return
        if not may_converse(token):
            self._refuse(403, "This token needs the scopes turns and sessions.")
            return
        self.log.info("A browser logged in with the token %s (%s).", token.id, token.name)
        self.identity_provider.set_login_cookie(self, user_of_token(token.id))
        self._redirect_safe(self.get_argument("next", default=self.base_url))  # type: ignore[no-untyped-call]  # Jupyter's

    def _refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        self._render(message={"error": message})  # type: ignore[no-untyped-call]  # Jupyter's
