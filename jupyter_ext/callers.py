"""Who makes a request: a Jupyter user, or one kernel with its own credential; and whose sessions they see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_server.auth.identity import User

if TYPE_CHECKING:
    from jupyter_ext.kernels import Kernel

LOCAL = "local"
ANONYMOUS_USERNAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Exactly one of ``user`` and ``kernel`` is set."""

    namespace: str
    user: User | None = None
    kernel: Kernel | None = None


def namespace_of(configured: str, user: User | None, env: Mapping[str, str] = os.environ) -> str:
    """The setting, else the name of a user whom the identity provider knows, else JUPYTERHUB_USER, else ``local``."""
    if configured:
        return configured
    if user is not None and not is_anonymous(user):
        return user.username
    return env.get("JUPYTERHUB_USER") or LOCAL


def is_anonymous(user: User) -> bool:
    """jupyter_server gives whoever comes with a token or a password a random name that changes with each login."""
    return bool(ANONYMOUS_USERNAME.fullmatch(user.username)) and (user.name or "").startswith("Anonymous ")
