"""Tests how every route answers requests with a wrong method, malformed requests, and those that are too large."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from tests.server import KERNEL_HEADER, TOKEN, AgentServer
from tests.soak.server_state import memory_mb

Json = dict[str, Any]
MB = 1 << 20
LOGIN = {"Authorization": f"token {TOKEN}"}
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")
STREAMS = ("/mcp", "/socket")
"""Answer GET in ways of their own."""


SCRIPT = [{"text": "ok", "loop": True}]


@pytest.fixture(scope="module")
def openapi(server: AgentServer) -> Json:
    with server.blocking_client(LOGIN) as client:
        document: Json = client.get("agent/v1/openapi.json").json()
    return document


@pytest.fixture
def client(server: AgentServer) -> Iterator[httpx.Client]:
    with server.blocking_client(LOGIN) as client:
        yield client


def fill_path(path: str) -> str:
    """Return the path with ids that do not exist."""
    return "agent/v1" + re.sub(r"\{(\w+)\}", lambda found: "0" * 64 if found[1] == "digest" else "none", path)


def takes_json(openapi: Json) -> list[tuple[str, str]]:
    return [
        (method.upper(), fill_path(path))
        for path, operations in openapi["paths"].items()
        for method, entry in operations.items()
        if "application/json" in entry.get("requestBody", {}).get("content", {})
    ]


def test_a_verb_that_a_path_lacks_is_told_with_those_that_it_has(client: httpx.Client, openapi: Json) -> None:
    for path, operations in openapi["paths"].items():
        has = {method.upper() for method in operations}
        for verb in {*VERBS, "PROPFIND"} - has:
            reply = client.request(verb, fill_path(path))
            assert reply.status_code == 405, (verb, path)
            wanted = has | {"OPTIONS"} | ({"HEAD"} if "GET" in has else set())
            assert set(reply.headers["Allow"].split(", ")) == wanted
            assert "error" in reply.json()


def test_options_names_the_verbs_to_everybody(server: AgentServer, openapi: Json) -> None:
    with server.blocking_client({}) as nobody:
        for path, operations in openapi["paths"].items():
            reply = nobody.options(fill_path(path))
            assert (reply.status_code, reply.content) == (204, b"")
            assert {method.upper() for method in operations} <= set(reply.headers["Allow"].split(", "))


def test_head_is_get_without_its_body(client: httpx.Client, openapi: Json) -> None:
    for path, operations in openapi["paths"].items():
        if "get" in operations and path not in STREAMS:
            head, get = client.head(fill_path(path)), client.get(fill_path(path))
            assert (head.status_code, head.content) == (get.status_code, b""), path
            assert head.headers["Content-Type"] == get.headers["Content-Type"]


def test_the_head_of_a_stream_ends_at_once(client: httpx.Client) -> None:
    turn = client.post("agent/v1/turns", json={"prompt": "hello"}).json()["turn"]
    reply = client.head(f"agent/v1/turns/{turn}/events")
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["Content-Type"].startswith("text/event-stream")


@pytest.mark.parametrize("verb", [*VERBS, "HEAD"])
def test_what_is_not_there_is_told_in_our_shape(client: httpx.Client, verb: str) -> None:
    reply = client.request(verb, "agent/v1/no/such/thing")
    assert reply.status_code == 404
    assert verb == "HEAD" or reply.json()["error"]["code"] == "not_found"


NO_JSON: list[tuple[str, bytes]] = [
    ("not JSON", b"{"),
    ("not UTF-8", b'{"a": "\xff\xfe"}'),
    ("a byte order mark", b"\xef\xbb\xbf{}"),
    ("a number alone", b"1"),
    ("a list", b"[1]"),
    ("null", b"null"),
    ("too deep, as lists", b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    ("too deep, as objects", b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
    ("far too deep, and cut off", b"[" * 2_000_000),
    ("NaN", b'{"a": NaN}'),
    ("Infinity", b'{"a": -Infinity}'),
    ("a number beyond all floats", b'{"a": 1e999}'),
    ("an integer of ten thousand digits", b'{"a": ' + b"9" * 10_000 + b"}"),
    ("a lone surrogate", b'{"a": "\\ud800"}'),
    ("a key twice", b'{"a": 1, "a": 2}'),
    ("a million values", b"[" + b"0," * 1_000_000 + b"0]"),
]


@pytest.mark.parametrize(("what", "body"), NO_JSON, ids=[what for what, _ in NO_JSON])
def test_a_body_that_not_every_reader_would_read_alike_is_refused(
    client: httpx.Client, openapi: Json, what: str, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    routes = takes_json(openapi)
    if len(body) > MB:
        routes = [("POST", "agent/v1/turns"), ("POST", "agent/v1/chat/completions"), ("PUT", "agent/v1/sessions/s")]
    for verb, path in routes:
        reply = client.request(verb, path, content=body, headers=headers)
        assert 400 <= reply.status_code < 500, (verb, path, reply.text)
        assert "Traceback" not in reply.text


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "image/png", "x"]
)
def test_a_body_of_another_type_is_refused(client: httpx.Client, openapi: Json, content_type: str) -> None:
    for verb, path in takes_json(openapi):
        reply = client.request(verb, path, content=b"{}", headers={"Content-Type": content_type})
        assert reply.status_code in ((415,) if not path.endswith("/mcp") else (400, 415)), (verb, path, reply.text)


@pytest.mark.parametrize("path", ["sessions/packed/turns", "chat/completions", "responses", "messages"])
def test_a_compressed_body_is_refused_with_the_reason(client: httpx.Client, path: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    reply = client.post(f"agent/v1/{path}", content=gzip.compress(b"{}"), headers=headers)
    assert (reply.status_code, "without Content-Encoding" in reply.text) == (415, True), reply.text


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "text/json", ""])
def test_json_has_many_names(client: httpx.Client, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert client.post("agent/v1/sessions", content=b"{}", headers=headers).status_code == 201


ODD_PATHS = ["sessions/%ff", "sessions/%", "sessions/%zz", "sessions/%00", "sessions/a%00b/turns", "turns/%ed%a0%80"]


@pytest.mark.parametrize("path", [*ODD_PATHS, "sessions/" + "x" * 5_000, "files/%2e%2e%2f%2e%2e/content"])
def test_a_path_that_is_no_text_is_a_mistake_of_the_client(server: AgentServer, path: str) -> None:
    for verb in ("GET", "DELETE", "POST"):
        status, reply = send_request(server, verb, path)
        assert 400 <= status < 500 or (verb == "DELETE" and status == 200), (verb, reply)
        assert "error" in json.loads(reply) or status == 200


@pytest.mark.parametrize(
    "query", ["name=%ff", "limit=%00", "limit=1e3", "path=%ff", "kernel=%ff", "limit=" + "9" * 400]
)
def test_a_query_that_can_not_be_read_is_a_mistake_of_the_client(server: AgentServer, query: str) -> None:
    status, reply = send_request(server, "GET", f"sessions?{query}")
    assert 400 <= status < 500, reply
    assert json.loads(reply)["error"]["code"]


def send_request(server: AgentServer, verb: str, path: str) -> tuple[int, bytes]:
    """Send a request with the path unchanged; httpx would normalize it."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(verb, f"/agent/v1/{path}", headers=LOGIN)
        reply = connection.getresponse()
        return reply.status, reply.read()


def pieces(count: int) -> Iterator[bytes]:
    piece = b"x" * MB
    for _ in range(count):
        yield piece


@pytest.mark.parametrize("announced", [True, False])
def test_what_is_too_large_is_read_and_never_held(server: AgentServer, client: httpx.Client, announced: bool) -> None:
    headers = {"Content-Type": "application/json"} | ({"Content-Length": str(200 * MB)} if announced else {})
    before = memory_mb(server.pid)
    for path in ("turns", "sessions", "chat/completions", "messages"):
        reply = client.post(f"agent/v1/{path}", content=pieces(200), headers=headers)
        assert reply.status_code == 413, reply.text
        assert "error" in reply.json()
    assert memory_mb(server.pid) - before < 100
    assert client.get("agent/v1/sessions").status_code == 200


def test_what_is_endless_is_answered_before_its_end(server: AgentServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        head = f"POST /agent/v1/turns HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: token {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Length: {10**13}\r\n\r\n".encode())
        connection.sendall(b"x" * 1_000)
        assert connection.recv(4_096).startswith(b"HTTP/1.1 413 ")


def test_a_length_with_thousands_of_digits_is_a_mistake_of_the_client(server: AgentServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        head = f"POST /agent/v1/turns HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: token {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Length: {'9' * 6_000}\r\n\r\n".encode())
        assert connection.recv(4_096).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}, {KERNEL_HEADER: "wrong"}])
def test_who_may_not_hears_so_whatever_was_sent(server: AgentServer, headers: dict[str, str]) -> None:
    with server.blocking_client(headers) as nobody:
        for path in ("agent/v1/turns", "agent/v1/sessions", "agent/v1/files"):
            assert nobody.post(path, content=pieces(40)).status_code == 401
            assert nobody.post(path, content=b"{").status_code == 401


def test_requests_follow_each_other_on_one_connection_also_behind_a_refusal(server: AgentServer) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        for headers, status in (({}, 401), (LOGIN, 400)) * 3:
            connection.request("POST", "/agent/v1/turns", b"{", {**headers, "Content-Type": "application/json"})
            reply = connection.getresponse()
            assert (reply.status, bool(reply.read())) == (status, True)


def test_of_who_shows_a_token_that_is_none_nothing_is_kept_in_memory(server: AgentServer) -> None:
    token = f"ak_{'0' * 12}_{'0' * 64}"
    head = f"POST /agent/v1/turns HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
    before = memory_mb(server.pid)
    with ExitStack() as open:
        connections = [open.enter_context(closing(open_connection(server))) for _ in range(5)]
        for connection in connections:
            connection.sendall(f"{head}Content-Length: {32 * MB}\r\n\r\n".encode())
            for piece in pieces(31):
                connection.sendall(piece)
        assert memory_mb(server.pid) - before < 80
        for connection in connections:
            connection.sendall(b"x" * MB)
            assert connection.recv(4_096).startswith(b"HTTP/1.1 401 ")


def open_connection(server: AgentServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)
