"""Who may call what: every route, by every kind of caller."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import pytest

from jupyter_ext.handlers import PREFIX, ROUTES
from tests.server import KERNEL_HEADER, TOKEN, AgentServer, Json, followed, start_turn, wait_for_event

CALLERS = (
    "nobody",
    "wrong token",
    "wrong kernel credential",
    "wrong kernel credential with a login",
    "login without xsrf",
    "login with xsrf",
    "token",
    "api key",
    "kernel",
    "other kernel",
)
REFUSED = dict.fromkeys(CALLERS[:4], 403)


@dataclass(frozen=True)
class World:
    """``kernel`` has a session and a turn that waits for an approval; ``other kernel`` has nothing to do with them."""

    server: AgentServer
    tokens: dict[str, str]
    cookies: dict[str, str]
    names: dict[str, str]

    def client(self, caller: str) -> httpx.Client:
        headers: dict[str, dict[str, str]] = {
            "wrong token": {"Authorization": "token wrong"},
            "wrong kernel credential": {KERNEL_HEADER: "wrong"},
            "wrong kernel credential with a login": {KERNEL_HEADER: "wrong", "X-XSRFToken": self.cookies["_xsrf"]},
            "login with xsrf": {"X-XSRFToken": self.cookies["_xsrf"]},
            "token": {"Authorization": f"token {TOKEN}"},
            "api key": {"x-api-key": TOKEN},
            "kernel": {KERNEL_HEADER: self.tokens["kernel"]},
            "other kernel": {KERNEL_HEADER: self.tokens["other kernel"]},
        }
        cookies = self.cookies if "login" in caller else {}
        return self.server.blocking_client(headers.get(caller, {}), cookies)


async def _prepare(server: AgentServer) -> World:
    await server.start()
    kernels = {name: await server.start_kernel(f"{number}.ipynb") for number, name in enumerate(CALLERS[-2:])}
    tokens = {name: await server.kernel_token(kernel) for name, kernel in kernels.items()}
    async with server.client(None) as client:
        await client.get("login")
        xsrf = client.cookies["_xsrf"]
        await client.post("login", data={"password": TOKEN, "_xsrf": xsrf})
        cookies = dict(client.cookies)
    async with server.kernel_client(tokens["kernel"]) as client:
        turn = await start_turn(client, "ask me", where="live", answers=["*"])
        asked = await wait_for_event(client, turn["turn"], "approval.required")
        spare, busy, branched = [
            (await client.post("agent/v1/sessions", json={"bind": False})).json()["id"] for _ in range(3)
        ]
        done = await start_turn(client, "hello", session=spare)
        await followed(client, done["turn"])
        form = {"purpose": "user_data", "session": turn["session"]}
        file = (await client.post("agent/v1/files", files={"file": ("a.txt", b"hello")}, data=form)).json()["id"]
    async with server.client() as client:
        await client.post("agent/v1/sessions", json={"id": "a user's"})
    async with server.kernel_client(tokens["kernel"]) as client:
        pending = (await client.put("agent/v1/binding", json={"session": "a user's"})).json()
    names = {
        "turn": turn["turn"],
        "session": turn["session"],
        "kernel": kernels["kernel"],
        "done": done["turn"],
        "spare": spare,
        "busy": busy,
        "branched": branched,
        "approval": asked["data"]["approval"],
        "bind": pending["pending"],
        "hash": "0" * 64,
        "file": file,
    }
    return World(server, tokens, cookies, names)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    script: list[Json] = [
        {"text": "", "calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "ask"},
        {"text": "ok", "loop": True},
    ]
    server = AgentServer(tmp_path_factory.mktemp("auth"), script)
    try:
        yield asyncio.run(_prepare(server))
    finally:
        server.sweep()


MCP_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

# (method, path, body, {caller: status}); who is not named gets what "token" gets, those in REFUSED 403, and a login
# without XSRF 403 for all but GET.
Row: TypeAlias = tuple[str, str, Any, dict[str, int]]
TABLE: list[Row] = [
    ("GET", "turns", None, {"token": 400}),
    ("GET", "turns/{turn}", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{done}/events", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{done}/outputs", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{turn}/outputs", None, {"token": 409, "other kernel": 404}),
    ("POST", "turns/{done}/cancel", {}, {"token": 200, "other kernel": 404}),
    ("POST", "turns", {"prompt": "hello", "session": "{busy}"}, {"token": 202, "other kernel": 403}),
    ("POST", "turns", {"prompt": "hello"}, {"token": 202}),
    ("POST", "turns", {"prompt": "hello", "kernel": "{kernel}"}, {"token": 202, "other kernel": 403}),
    ("GET", "turns/{done}/versions", None, {"token": 200, "other kernel": 404}),
    ("POST", "turns/{turn}/claims", {"call": "none", "client": "c"}, {"token": 404}),
    ("POST", "turns/{turn}/claims/none", {"action": "renew", "token": "t"}, {"token": 404}),
    ("POST", "agent/approvals/{approval}", {"decision": "never"}, {"token": 400}),
    ("POST", "agent/approvals/none", {"decision": "deny"}, {"token": 404}),
    (
        "POST",
        "agent/approvals/{approval}",
        {"decision": "approve", "remember": "session", "shown": "0"},
        {"token": 409, "kernel": 403, "other kernel": 403},
    ),
    ("GET", "agent/approvals", None, {"token": 200}),
    ("GET", "agent/permissions", None, {"token": 200}),
    ("GET", "agent/approvals/{approval}", None, {"token": 200, "other kernel": 404}),
    ("GET", "sessions/{session}/permissions", None, {"token": 200, "other kernel": 403}),
    ("DELETE", "sessions/{spare}/permissions", None, {"token": 200, "other kernel": 403}),
    ("GET", "binding/variables", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("GET", "binding/variables?kernel={kernel}", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("GET", "search", None, {"token": 200}),
    ("POST", "search/access", {}, {"token": 200, "kernel": 202, "other kernel": 202}),
    ("GET", "sessions", None, {"token": 200}),
    ("POST", "sessions", {"bind": False}, {"token": 201}),
    ("POST", "sessions", {"id": "{spare}", "bind": False}, {"token": 201, "other kernel": 403}),
    ("GET", "sessions/{session}", None, {"token": 200, "other kernel": 403}),
    ("PATCH", "sessions/{spare}", {"title": "t"}, {"token": 200, "other kernel": 403}),
    ("POST", "sessions/{spare}/clear", {}, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/compact", None, {"token": 200, "other kernel": 403}),
    ("POST", "sessions/{spare}/compact", {}, {"token": 200, "other kernel": 403}),
    ("DELETE", "sessions/{spare}/compact", None, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/usage", None, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{spare}/variables", None, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{spare}/variables/x", None, {"token": 404, "other kernel": 403}),
    ("POST", "sessions/{spare}/rebuild", {"dry_run": True}, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/items", None, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{spare}/branches", None, {"token": 200, "other kernel": 403}),
    ("POST", "sessions/{spare}/branches", {"before": "none"}, {"token": 404, "other kernel": 403}),
    ("PUT", "sessions/{spare}/branch", {"name": "main"}, {"token": 200, "other kernel": 403}),
    ("DELETE", "sessions/{spare}/branches/none", None, {"token": 404, "other kernel": 403}),
    ("POST", "sessions/{spare}/fork", {"turns": 0}, {"token": 201, "other kernel": 403}),
    ("POST", "sessions/{spare}/fork", {"id": "a user's"}, {"token": 409, "kernel": 403, "other kernel": 403}),
    ("POST", "sessions/{branched}/undo", {}, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/export", None, {"token": 200, "other kernel": 403}),
    ("POST", "sessions/import", {"messages": []}, {"token": 201}),
    ("POST", "sessions/{spare}/clear-outputs", {"cells": ["c"]}, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/blobs/{hash}", None, {"token": 404, "other kernel": 403}),
    ("GET", "sessions/{session}/turns", None, {"token": 200, "other kernel": 403}),
    ("GET", "sessions/{session}/meanwhile", None, {"token": 200, "other kernel": 403}),
    ("POST", "sessions/{busy}/turns", {"prompt": "hello"}, {"token": 202, "other kernel": 403}),
    ("POST", "files", None, {"token": 400}),
    ("GET", "files", None, {"token": 200}),
    ("GET", "files?session={session}", None, {"token": 200, "other kernel": 403}),
    ("GET", "files/{file}", None, {"token": 200, "other kernel": 404}),
    ("GET", "files/{file}/content", None, {"token": 200, "other kernel": 404}),
    ("DELETE", "files/{file}?session=none", None, {"token": 404}),
    ("DELETE", "files/none", None, {"token": 404}),
    ("GET", "containers/{session}/files", None, {"token": 200, "other kernel": 403}),
    ("GET", "containers/{session}/files/{file}", None, {"token": 200, "other kernel": 403}),
    ("GET", "containers/{session}/files/{file}/content", None, {"token": 200, "other kernel": 403}),
    ("POST", "turns", {"prompt": "hello", "inputs": ["{file}"]}, {"token": 202, "other kernel": 404}),
    ("DELETE", "sessions/none", None, {"token": 200}),
    ("GET", "binding", None, {"token": 200}),
    ("PUT", "binding", {"session": "{spare}"}, {"token": 400, "kernel": 200, "other kernel": 202}),
    ("DELETE", "binding", None, {"token": 400, "kernel": 200, "other kernel": 200}),
    ("GET", "beside", None, {"token": 400, "kernel": 200, "other kernel": 200}),
    ("GET", "beside?path=0.ipynb", None, {"token": 200}),
    ("POST", "beside", {"sha256": "0" * 64}, {"token": 400, "kernel": 409, "other kernel": 409}),
    ("GET", "binds/{bind}", None, {"token": 200, "other kernel": 404}),
    ("GET", "binds/{bind}/confirm", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("POST", "binds/{bind}/confirm", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("POST", "mcp", MCP_HELLO, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("GET", "mcp", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("DELETE", "mcp", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("GET", "skills", None, {"token": 200}),
    ("POST", "skills", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("GET", "skills/none", None, {"token": 404}),
    ("DELETE", "skills/none", None, {"token": 404, "kernel": 403, "other kernel": 403}),
    ("GET", "skills/none/versions", None, {"token": 404}),
    ("POST", "skills/none/versions", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("GET", "trust", None, {"token": 200}),
    ("POST", "trust", {}, {"token": 400, "kernel": 202, "other kernel": 202}),
    ("DELETE", "trust", None, {"token": 400, "kernel": 200, "other kernel": 200}),
    ("POST", "tools", {}, {"token": 200}),
    ("POST", "tools", {"kernel": "{kernel}"}, {"token": 200, "other kernel": 403}),
    ("GET", "models", None, {"token": 200}),
    ("GET", "models/no-such-model", None, {"token": 404}),
    ("POST", "models/no-such-model/pull", {"consent": True}, {"token": 404}),
    ("PUT", "engine", {"model": "", "session": "{spare}"}, {"token": 200, "other kernel": 403}),
    ("POST", "engine/unload", {}, {"token": 409}),
    ("GET", "health", None, {"token": 200}),
    ("GET", "socket", None, {"token": 400, "kernel": 403, "other kernel": 403}),
]


def expected(method: str, statuses: dict[str, int], caller: str) -> int:
    if caller == "login without xsrf" and method != "GET":
        return 403
    return statuses.get(caller, REFUSED.get(caller, statuses.get("token", 0)))


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_route_answers_each_caller_as_the_table_says(world: World, row: Row, caller: str) -> None:
    method, path, body, statuses = row
    with world.client(caller) as client:
        reply = client.request(method, f"agent/v1/{filled(path, world.names)}", json=filled(body, world.names))
    assert reply.status_code == expected(method, statuses, caller), reply.text
    if reply.status_code >= 400 and '"jsonrpc"' not in reply.text:  # MCP has its own shape
        error: Json = reply.json()["error"]
        assert error["code"]
        assert error["message"]
        assert error["request_id"] == reply.headers["X-Request-ID"]


def test_the_table_has_every_verb_of_every_route(world: World) -> None:
    asked = {(method, f"{PREFIX}/{filled(path, world.names)}") for method, path, _, _ in TABLE}
    verbs = [
        (verb, route)
        for route, handler in ROUTES
        for verb in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if verb.lower() in vars(handler)
    ]
    missing = [
        (verb, route) for verb, route in verbs if not any(v == verb and re.fullmatch(route, p) for v, p in asked)
    ]
    assert missing == []


def test_a_kernel_credential_opens_nothing_else_of_the_server(world: World) -> None:
    token = world.tokens["kernel"]
    for headers in ({KERNEL_HEADER: token}, {"Authorization": f"token {token}"}):
        with world.server.blocking_client(headers) as client:
            assert client.get("api/contents").status_code == 403


def test_a_kernel_can_not_answer_the_approval_of_another_ones_turn(world: World) -> None:
    path = filled("agent/v1/agent/approvals/{approval}", world.names)
    with world.client("other kernel") as client:
        assert client.post(path, json={"decision": "approve"}).status_code == 404
    with world.client("kernel") as client:
        assert client.post(path, json={"decision": "deny"}).json()["status"] == "resolved"
        assert client.post(path, json={"decision": "approve"}).status_code == 409
