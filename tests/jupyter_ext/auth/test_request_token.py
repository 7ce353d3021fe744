from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders

from jupyter_ext.auth import request_token

TEXT = "ak_0123456789ab_" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {TEXT}"},
        {"authorization": f"token {TEXT}"},
        {"AUTHORIZATION": f"  BEARER   {TEXT}  "},
        {"x-api-key": TEXT},
        {"X-Api-Key": f" {TEXT} "},
        {"Authorization": f"Bearer {TEXT}", "x-api-key": "another"},
    ],
)
def test_a_token_is_taken_out_of_the_headers(headers: dict[str, str]) -> None:
    found = HTTPHeaders(headers)
    assert request_token.take_token(found) == TEXT
    assert "Authorization" not in found
    assert "x-api-key" not in found


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "token 0123456789"},
        {"Authorization": TEXT},
        {"Authorization": f"Basic {TEXT}"},
        {"Authorization": f"Bearer x {TEXT}"},
        {"Authorization": "Bearer ak_of_jupyter"},
        {"Authorization": "token of-the-server", "x-api-key": TEXT},
        {"x-api-key": "sk-another"},
        {"Cookie": f"token={TEXT}"},
    ],
)
def test_what_is_somebody_elses_stays_as_it_is(headers: dict[str, str]) -> None:
    found = HTTPHeaders(headers)
    assert request_token.take_token(found) == ""
    assert dict(found.get_all()) == dict(HTTPHeaders(headers).get_all())


def test_half_a_token_is_taken_too_so_that_its_holder_hears_of_it() -> None:
    assert request_token.take_token(HTTPHeaders({"x-api-key": TEXT[:40]})) == TEXT[:40]
