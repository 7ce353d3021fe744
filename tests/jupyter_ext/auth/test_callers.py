from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.auth.identity import IdentityProvider, User

from jupyter_ext.auth.callers import namespace_of

ANYONE: Any = SimpleNamespace(log=logging.getLogger(__name__))


@pytest.mark.parametrize(
    ("configured", "user", "env", "namespace"),
    [
        ("team", User("ada", "Ada"), {"JUPYTERHUB_USER": "hub"}, "team"),
        ("", User("ada", "Ada"), {"JUPYTERHUB_USER": "hub"}, "ada"),
        ("", IdentityProvider().generate_anonymous_user(ANYONE), {"JUPYTERHUB_USER": "hub"}, "hub"),
        ("", IdentityProvider().generate_anonymous_user(ANYONE), {}, "local"),
        ("", None, {}, "local"),
    ],
)
def test_the_namespace_is_the_setting_or_a_known_user_or_the_hub_user_or_local(
    configured: str, user: User | None, env: dict[str, str], namespace: str
) -> None:
    assert namespace_of(configured, user, env) == namespace
