"""An identity provider for tests, with users of known names: each logs in with ``Authorization: token user-NAME``, or
with the cookie ``user``. It records every credential that it receives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User


class Users(IdentityProvider):
    def get_user(self, handler: Any) -> User | None:
        shown = handler.request.headers.get("Authorization", "") or handler.request.headers.get("x-api-key", "")
        with Path(os.environ["PROBE_USERS_SEEN"]).open("a", encoding="utf-8") as seen:
            seen.write(f"{shown}\n")
        name = shown.removeprefix("token user-")
        if name in ("", shown):
            return None
        handler._token_authenticated = True
        return User(name, name.title())
