from __future__ import annotations

import pytest
from jupyter_server.auth.identity import User

from agent_kernel.core.errors import Forbidden
from jupyter_ext.api.routes import RULES
from jupyter_ext.auth.callers import Caller, ScopedUser
from jupyter_ext.auth.hub_identity import ADMIN_SCOPES, USER_SCOPES
from jupyter_ext.auth.route_scopes import ANY, RouteScopes, check_shared_user

SCOPES: dict[str, RouteScopes] = {named["route"]: named["scopes"] for _, _, named in RULES}
OF_A_HANDLER_WITHOUT_ROUTE = RouteScopes()


def scopes_of(verb: str, route: str) -> frozenset[str]:
    return SCOPES.get(route, OF_A_HANDLER_WITHOUT_ROUTE).for_verb(verb)


@pytest.mark.parametrize(
    ("verb", "route", "scopes"),
    [
        ("POST", "chat/completions", {"turns"}),
        ("GET", "sessions", {"sessions"}),
        ("GET", "sessions/{id}", {"turns", "sessions"}),
        ("HEAD", "sessions/{id}", {"turns", "sessions"}),
        ("PATCH", "sessions/{id}", {"sessions"}),
        ("DELETE", "files/{id}", {"files"}),
        ("GET", "files/{id}", {"turns", "files"}),
        ("GET", "trust", {"all"}),
        ("HEAD", "trust", {"all"}),
        ("POST", "trust", set()),
        ("GET", "binds/{id}/confirm", set()),
        ("POST", "a route of tomorrow", {"all"}),
        ("POST", "", {"all"}),
        ("GET", "health", ANY),
    ],
)
def test_a_route_is_opened_by_its_scopes(verb: str, route: str, scopes: set[str]) -> None:
    assert scopes_of(verb, route) == scopes


def test_scopes_of_single_verbs_are_those_of_http_methods() -> None:
    assert {verb for scopes in SCOPES.values() for verb in scopes.by_verb} <= {"GET", "POST", "PATCH", "DELETE", "PUT"}


@pytest.mark.parametrize(
    ("verb", "route", "user", "administrator"),
    [
        ("POST", "chat/completions", True, True),
        ("POST", "turns", True, True),
        ("DELETE", "sessions/{id}", True, True),
        ("POST", "files", True, True),
        ("GET", "usage", True, True),
        ("GET", "models", True, True),
        ("GET", "metrics", False, True),
        ("POST", "models/{id}/pull", False, True),
        ("POST", "engine/unload", False, True),
        ("POST", "mcp", False, True),
        ("POST", "a route of tomorrow", False, True),
        ("POST", "trust", False, False),
        ("POST", "binds/{id}/confirm", False, False),
    ],
)
def test_users_of_a_hub_use_the_agent_and_its_administrators_the_server_too(
    verb: str, route: str, user: bool, administrator: bool
) -> None:
    for scopes, allowed in ((USER_SCOPES, user), (ADMIN_SCOPES, administrator), (frozenset[str](), False)):
        someone = ScopedUser("ada", "ada", scopes=scopes)
        assert Caller("ada", user=someone).is_confined == (scopes != ADMIN_SCOPES)
        if allowed:
            check_shared_user(scopes_of(verb, route), someone)
        else:
            with pytest.raises(Forbidden):
                check_shared_user(scopes_of(verb, route), someone)


def test_the_owner_of_a_server_of_their_own_has_no_scopes_to_check() -> None:
    owner = User("ada", "ada")
    check_shared_user(scopes_of("POST", "trust"), owner)
    assert not Caller("ada", user=owner).is_confined
