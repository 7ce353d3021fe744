"""Tests the token of ``agent-kernel serve``, and the link that logs in a browser."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import httpx
import pytest

from tests.cli.served_clients import Serve, messages_of
from tests.narrowing import not_none
from tests.served import ended
from tests.server import PLAIN


def test_a_token_is_made_once_kept_for_its_owner_and_told_nowhere(serve: Serve) -> None:
    first = serve("--log-level", "debug").start()
    token, file = first.token, Path(first.started["token_file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with first.client() as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/v1/models", params={"token": token}).status_code == 200
        client.post("/v1/chat/completions", json={"model": "none", "messages": messages_of("x")})
    assert token.encode() not in Path(f"/proc/{not_none(first.process).pid}/cmdline").read_bytes()
    assert first.stop() == 0
    assert token.encode() not in first.everything()
    again = serve("--data-dir", "data", env={"AGENT_KERNEL_DATA_DIR": "other"}).start()
    assert again.token == token
    assert (again.started["token_file"], again.started["sessions"]) == (str(file), str(file.parent))
    assert again.stop() == 0


def test_a_token_in_an_address_opens_nothing_and_is_in_no_log(serve: Serve) -> None:
    served = serve().start()
    with served.nobody() as client:
        for path in ("", "login", "logout", "static/favicon.ico", "webapp/a/b.js", "v1/turns", "nothing"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                reply = client.request(method, f"{path}?token={served.token}")
                assert served.token not in reply.text + str(reply.headers)
                assert reply.status_code in (401, 403, 404, 405) or "v1" not in path
    served.stop()
    assert "POST" in served.log.read_text()
    assert served.token not in served.log.read_text()


@pytest.mark.parametrize("variable", ["JUPYTER_TOKEN", "AGENT_KERNEL_TOKEN"])
def test_a_token_that_is_given_is_used_and_not_kept(serve: Serve, variable: str) -> None:
    given = "a-token-of-the-operator"
    served = serve(env={variable: given, "AGENT_KERNEL_DATA_DIR": "data/below"}).start()
    assert served.started["token_file"] is None
    assert served.started["sessions"] == str(served.directory / "data" / "below")
    assert variable in served.started["token_from"]
    with served.client(given) as client, served.client("another") as stranger:
        assert client.get("/v1/models").status_code == 200
        assert stranger.get("/v1/models").status_code == 401
    assert served.stop() == 0
    assert given.encode() not in served.everything()


def test_in_a_kernel_its_credential_is_no_token(serve: Serve) -> None:
    served = serve(env={"AGENT_KERNEL_TOKEN": "the-kernels-own", "AGENT_KERNEL_ID": "k"}).start()
    assert served.token != "the-kernels-own"


def test_a_token_that_others_can_read_is_refused(serve: Serve) -> None:
    served = serve()
    file = served.directory / "data" / "serve-token"
    file.parent.mkdir(parents=True)
    file.write_text("known-to-all\n")
    file.chmod(0o644)
    status, out = ended(served.begin())
    assert (status, out) == (1, "")
    assert "Other users may read the token" in served.log.read_text()
    assert "known-to-all" not in served.log.read_text()


# ------------------------------------------------------------------------------------------------ the page


def test_in_a_terminal_it_prints_a_link_that_logs_in_one_browser(serve: Serve) -> None:
    served = serve()
    terminal, inside = os.openpty()
    try:
        served.begin(stdout=inside, as_json=False)
        os.close(inside)  # so that reading ends if the server does
        url = not_none(re.search(r"in a browser (\S+)", read_terminal(terminal, "stop  ")))
        assert (served.directory / "data" / "serve-token").read_text().strip() not in url[1]
        origin = url[1].partition("?")[0]
        with httpx.Client(base_url=origin, **PLAIN) as browser, httpx.Client(base_url=origin, **PLAIN) as late:
            first = browser.get(url[1])
            assert (first.status_code, first.headers["Location"]) == (302, "/")
            assert {"HttpOnly", "SameSite=Lax"} <= set(first.headers["Set-Cookie"].split("; "))
            assert browser.get("agent/v1/health").status_code == 200
            assert "Set-Cookie" not in late.get(url[1]).headers
            assert late.get("agent/v1/health").status_code == 401
    finally:
        os.close(terminal)


def test_a_login_outlives_a_restart_and_the_page_is_below_the_path_of_the_server(serve: Serve) -> None:
    served = serve("--base-url", "/team/a/").start()
    assert served.started["page_url"] == f"{served.url}/"
    with httpx.Client(**PLAIN) as browser:
        assert browser.get(served.url).headers["Location"] == "/team/a/"
        page = browser.get(f"{served.url}/")
        assert re.findall(r'(?:href|src)="(?!webapp/)', page.text) == []
        proof = {"X-XSRFToken": browser.cookies["_xsrf"]}
        done = browser.post(f"{served.url}/login", data={"password": served.token}, headers=proof)
        assert "Path=/team/a/" in done.headers["Set-Cookie"].split("; ")
        port = served.url.rpartition(":")[2].partition("/")[0]
        assert served.stop() == 0
        served.options = ("--base-url", "/team/a/", "--port", port)
        served.start()
        assert browser.get(f"{served.url}/agent/v1/sessions").status_code == 200


def read_terminal(terminal: int, until: str) -> str:
    """Return what a terminal printed, once ``until`` is part of it."""
    text = ""
    while until not in text:
        text += os.read(terminal, 4096).decode()
    return text
