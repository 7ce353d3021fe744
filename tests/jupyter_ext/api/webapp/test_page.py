"""Tests the web page of ``agent-kernel serve`` and its login, with the requests of a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from agent_kernel.core.api_tokens import ApiTokenStore
from tests.served import Served

PEOPLE = ("turns", "sessions", "files")
FILE = re.compile(r'(?:href|src)="(webapp/[0-9a-f]+/[\w.]+)"')


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), [{"text": "Hello.", "loop": True}], ("--log-level", "debug")) as one:
        yield one.start()


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    """A client with the cookies of a browser that has opened the page."""
    with served.nobody() as client:
        assert client.get("/").status_code == 200
        yield client


def log_in(client: httpx.Client, token: str) -> httpx.Response:
    return client.post("/login", data={"password": token}, headers=proof(client))


def proof(client: httpx.Client) -> dict[str, str]:
    return {"X-XSRFToken": client.cookies["_xsrf"]}


def new_session(client: httpx.Client) -> httpx.Response:
    return client.post("/agent/v1/sessions", json={}, headers=proof(client))


def session_ids(client: httpx.Client) -> list[str]:
    return [one["id"] for one in client.get("/agent/v1/sessions").json()["sessions"]]


def new_token(served: Served, *scopes: str, user: str = "") -> tuple[str, str]:
    """Return the id and the text of a new API token."""
    token, text = ApiTokenStore(served.directory / "data" / "tokens").new(scopes, user=user)
    return token.id, text


def test_the_page_runs_only_scripts_of_this_server_and_no_other_page_may_embed_it(served: Served) -> None:
    with served.nobody() as client:
        page = client.get("/")
        assert page.headers["Content-Type"].startswith("text/html")
        policy = dict(rule.split(" ", 1) for rule in page.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        assert page.headers["Cache-Control"] == "no-store"
        assert "<script>" not in page.text
        assert "style=" not in page.text
        assert served.token not in page.text
        assert 'data-token-file=""' in page.text, "a data directory of one's own is not shown to everybody"
        assert client.head("/").status_code == 200


def test_its_files_can_be_kept_forever_and_have_addresses_of_their_version(browser: httpx.Client) -> None:
    names = FILE.findall(browser.get("/").text)
    assert {name.rpartition("/")[2] for name in names} == {"icon.svg", "widget.css", "webapp.css", "webapp.js"}
    version = names[0].split("/")[1]
    for name in (*names, f"webapp/{version}/widget.js"):
        file = browser.get(f"/{name}")
        assert file.status_code == 200, name
        assert "immutable" in file.headers["Cache-Control"]
        assert file.headers["X-Content-Type-Options"] == "nosniff"
        plain = browser.get(f"/{name}", headers={"Accept-Encoding": "identity"})
        assert plain.content == file.content
        assert int(file.headers["Content-Length"]) <= int(plain.headers["Content-Length"])
    for wrong in ("webapp/000000000000/webapp.js", f"webapp/{version}/page.html", f"webapp/{version}/..%2Fpage.py"):
        assert browser.get(f"/{wrong}").status_code in (401, 404), wrong


def test_without_a_login_the_page_gets_nothing_of_the_api(browser: httpx.Client) -> None:
    for path in ("health", "sessions", "models", "socket"):
        assert browser.get(f"/agent/v1/{path}").status_code == 401, path


def test_a_token_in_the_address_does_not_log_in(served: Served) -> None:
    with served.nobody() as client:
        for query in ({"token": served.token}, {"code": served.token}, {"code": ""}, {"code": "\u00e9"}):
            assert client.get("/", params=query).status_code in (200, 302)
            assert client.get("/agent/v1/health").status_code == 401, query


def test_a_wrong_token_is_refused_and_sets_no_cookie(browser: httpx.Client) -> None:
    for wrong in ("wrong", "", "ak_0123456789ab_" + "0" * 64, "ak_0123456789ab_"):
        refused = log_in(browser, wrong)
        assert refused.status_code == 401, wrong
        assert "Set-Cookie" not in refused.headers
    assert browser.get("/agent/v1/health").status_code == 401


def test_the_login_is_a_cookie_that_scripts_and_other_sites_cannot_use(served: Served, browser: httpx.Client) -> None:
    done = log_in(browser, served.token)
    assert (done.status_code, done.headers["Location"]) == (302, "/")
    (cookie,) = done.headers.get_list("Set-Cookie")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert served.token not in cookie
    assert browser.get("/agent/v1/sessions").status_code == 200
    assert browser.post("/agent/v1/sessions", json={}).status_code == 403, "without the XSRF token"
    assert new_session(browser).status_code == 201
    elsewhere = {"Origin": "https://elsewhere.example", **proof(browser)}
    assert browser.post("/agent/v1/sessions", json={}, headers=elsewhere).status_code == 403


def test_a_login_needs_the_xsrf_token_too(served: Served, browser: httpx.Client) -> None:
    assert browser.post("/login", data={"password": served.token}).status_code == 403
    assert browser.get("/agent/v1/health").status_code == 401


def test_each_person_sees_the_conversations_of_their_own_token_only(served: Served) -> None:
    with served.nobody() as anna, served.nobody() as ben, served.nobody() as owner:
        tokens = {"anna": new_token(served, *PEOPLE, user="anna")[1], "ben": new_token(served, *PEOPLE, user="ben")[1]}
        for client, token in ((anna, tokens["anna"]), (ben, tokens["ben"]), (owner, served.token)):
            client.get("/")
            assert log_in(client, token).status_code == 302
        session = new_session(anna).json()["id"]
        assert session_ids(anna) == [session]
        assert session_ids(ben) == []
        assert session not in session_ids(owner)
        assert ben.get(f"/agent/v1/sessions/{session}").status_code == 404
        with served.client(tokens["anna"]) as program:
            assert session_ids(program) == [session], "the browser is the token, as a program with it is"
        refused = anna.post("/agent/v1/engine/unload", json={}, headers=proof(anna))
        assert refused.status_code == 403, "its scopes do not allow it"


def test_a_login_ends_with_its_token(served: Served, browser: httpx.Client) -> None:
    id, text = new_token(served, "all", user="carl")
    done = log_in(browser, text)
    assert done.status_code == 302
    assert text[16:] not in done.headers["Set-Cookie"]
    assert new_session(browser).status_code == 201
    ApiTokenStore(served.directory / "data" / "tokens").revoke(id)
    assert browser.get("/agent/v1/health").status_code == 401
    assert new_session(browser).status_code == 401
    assert browser.get("/").status_code == 200, "the page then asks for another token"


@pytest.mark.parametrize("scopes", [["turns"], ["sessions"], ["metrics", "files"]])
def test_a_token_that_is_not_for_conversations_opens_no_page(
    served: Served, browser: httpx.Client, scopes: list[str]
) -> None:
    assert log_in(browser, new_token(served, *scopes)[1]).status_code == 403
    assert browser.get("/agent/v1/health").status_code == 401


def test_no_secret_of_a_login_is_in_the_log(served: Served) -> None:
    _, text = new_token(served, *PEOPLE)
    with served.nobody() as client:
        client.get("/", params={"code": "a-secret-of-a-link"})
        client.get("/")
        log_in(client, text)
    log = served.log.read_text()
    assert served.token not in log
    assert text not in log
    assert "a-secret-of-a-link" not in log
