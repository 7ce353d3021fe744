from __future__ import annotations

import pytest

from jupyter_ext.auth.route_scopes import ANY, ROUTE_SCOPES, scopes_of


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
def test_a_route_is_opened_by_its_scopes_and_one_without_a_row_by_all(verb: str, route: str, scopes: set[str]) -> None:
    assert scopes_of(verb, route) == scopes


def test_no_row_of_a_verb_is_freer_than_it_looks() -> None:
    """A row of one verb stands beside one of its route, or is the only thing that is not for ``all`` alone."""
    verbs = [row.split(" ") for row in ROUTE_SCOPES if " " in row]
    assert {verb for verb, _ in verbs} <= {"GET", "POST", "PATCH", "DELETE", "PUT"}
    assert [route for _, route in verbs if route not in ROUTE_SCOPES] == []
