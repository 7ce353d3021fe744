"""Tests who may call which route: every route, by every kind of caller."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from agent_kernel.core.api_tokens import SCOPES, ApiTokenStore
from jupyter_ext.api.routes import PREFIX, RULES, routes
from jupyter_ext.auth.route_scopes import ALL, ANY
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
UNKNOWN = dict.fromkeys(CALLERS[:4], 401)
FOREIGN_PAGES = {
    "token on a foreign page": "token",
    "lasting token on a foreign page": "lasting token",
    "kernel on a foreign page": "kernel",
    "login on a foreign page": "login with xsrf",
    "nobody on a foreign page": "nobody",
}
"""Credentials that a page of another origin sends: none of them counts there."""
FOREIGN = "https://elsewhere.example"
LASTING = {
    "lasting token": ["all"],
    "scoped token": ["turns", "sessions", "files", "skills", "metrics"],
    "token without the scope": [],
    "token of another user": ["all"],
    "expired token": ["all"],
    "revoked token": ["all"],
    "wrong lasting token": ["all"],
}
"""Kinds of lasting tokens. The one without the scope is another for each route."""


@dataclass(frozen=True)
class World:
    """A server with all kinds of callers. ``kernel`` has a session and a turn that waits for an approval; ``other
    kernel`` has none of these.
    """

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
            **{name: {"Authorization": f"Bearer {self.tokens[name]}"} for name in (*LASTING, *SCOPES)},
        }
        cookies = self.cookies if "login" in caller else {}
        page = {"Origin": FOREIGN} if caller in FOREIGN_PAGES else {}
        return self.server.blocking_client(page | headers.get(FOREIGN_PAGES.get(caller, caller), {}), cookies)


async def prepare(server: AgentServer) -> World:
    await server.start()
    kernels = {name: await server.start_kernel(f"{number}.ipynb") for number, name in enumerate(CALLERS[-2:])}
    tokens = {name: await server.kernel_token(kernel) for name, kernel in kernels.items()}
    tokens |= lasting_tokens(server.directory / "data" / "tokens")
    async with server.client(None) as client:
        await client.get("login")
        xsrf = client.cookies["_xsrf"]
        await client.post("login", data={"password": TOKEN, "_xsrf": xsrf})
        cookies = dict(client.cookies)
    async with server.kernel_client(tokens["kernel"]) as client:
        turn = await start_turn(client, "ask me", where="live", answers=["*"])
        asked = await wait_for_event(client, turn["turn"], "approval.required")
        spare, busy, branched, replaced = [
            (await client.post("agent/v1/sessions", json={"bind": False})).json()["id"] for _ in range(4)
        ]
        done = await start_turn(client, "hello", session=spare)
        await followed(client, done["turn"])
        form = {"purpose": "user_data", "session": turn["session"]}
        file = (await client.post("agent/v1/files", files={"file": ("a.txt", b"hello")}, data=form)).json()["id"]
    async with server.client() as client:
        await client.post("agent/v1/sessions", json={"id": "a user's"})
        response = (await client.post("agent/v1/responses", json={"input": "hello"})).json()["id"]
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
        "replaced": replaced,
        "approval": asked["data"]["approval"],
        "bind": pending["pending"],
        "hash": "0" * 64,
        "file": file,
        "response": response,
    }
    return World(server, tokens, cookies, names)


def lasting_tokens(directory: Path) -> dict[str, str]:
    """Return the lasting tokens of each kind of caller, and one for each scope by the scope's name."""
    tokens, texts = ApiTokenStore(directory), dict[str, str]()
    for name, scopes in [*LASTING.items(), *((scope, [scope]) for scope in SCOPES)]:
        user = "other" if name == "token of another user" else ""
        token, texts[name] = tokens.new(scopes or ["turns"], user=user)
        if name == "revoked token":
            tokens.revoke(token.id)
        if name == "expired token":
            path = directory / f"{token.id}.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"expires": 1.0}))
    texts["wrong lasting token"] = texts["wrong lasting token"][:-4] + "0000"
    return texts


SCRIPT: list[Json] = [
    {"text": "", "calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "ask"},
    {"text": "ok", "loop": True},
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with AgentServer(tmp_path_factory.mktemp("auth"), SCRIPT) as server:
        yield asyncio.run(prepare(server))


PERSON_ONLY = {"kernel": 403, "other kernel": 403}
WITH_FILE = {
    "role": "user",
    "content": [{"type": "file", "file": {"file_id": "{file}"}}, {"type": "text", "text": "hi"}],
}
NOT_THEIRS = {"token": 200, "other kernel": 404, "token of another user": 404}
HELLO = {"role": "user", "content": "hello"}
SAID = {"model": "default", "max_tokens": 10, "messages": [HELLO]}
OF_A_KERNEL = {"scoped token": 403, "token of another user": 404}
OTHER_SUBJECTS = dict.fromkeys(("kernel", "other kernel", "lasting token", "scoped token"), 404)
"""A response is for the credential that asked for it."""
MCP_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

# (method, path, body, {caller: status}); who is not named gets what "token" gets, those in UNKNOWN 401, and a login
# without XSRF 403 for all but GET.
Row: TypeAlias = tuple[str, str, Any, dict[str, int]]
TABLE: list[Row] = [
    ("GET", "turns/{turn}", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{done}/events", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{done}/outputs", None, {"token": 200, "other kernel": 404}),
    ("GET", "turns/{turn}/outputs", None, {"token": 409, "other kernel": 404}),
    ("POST", "turns/{done}/cancel", {}, {"token": 200, "other kernel": 404}),
    ("POST", "turns", {"prompt": "hello", "session": "{busy}"}, {"token": 202, "other kernel": 403}),
    ("POST", "turns", {"prompt": "hello"}, {"token": 202}),
    ("POST", "turns", {"prompt": "hello", "kernel": "{kernel}"}, {"token": 202, "other kernel": 403, **OF_A_KERNEL}),
    ("GET", "turns/{done}/versions", None, {"token": 200, "other kernel": 404}),
    ("POST", "turns/{turn}/claims", {"call": "none", "client": "c"}, {"token": 404}),
    ("POST", "turns/{turn}/claims/none", {"action": "renew", "token": "t"}, {"token": 404}),
    ("POST", "agent/approvals/{approval}", {"decision": "never"}, {"token": 400, "token of another user": 400}),
    ("POST", "agent/approvals/none", {"decision": "deny"}, {"token": 404}),
    (
        "POST",
        "agent/approvals/{approval}",
        {"decision": "approve", "remember": "session", "shown": "0"},
        {"token": 409, "kernel": 403, "other kernel": 403, "scoped token": 404},
    ),
    ("GET", "agent/approvals", None, {"token": 200}),
    ("GET", "agent/permissions", None, {"token": 200}),
    ("GET", "agent/approvals/{approval}", None, {"token": 200, "other kernel": 404, "scoped token": 404}),
    ("GET", "sessions/{session}/permissions", None, {"token": 200, "other kernel": 403}),
    ("DELETE", "sessions/{spare}/permissions", None, {"token": 200, "other kernel": 403}),
    ("GET", "binding/variables", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("GET", "binding/variables?kernel={kernel}", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("POST", "chat/completions", SAID, {"token": 200}),
    ("POST", "chat/completions", SAID | {"session_id": "{spare}"}, {"token": 200, "other kernel": 403}),
    ("POST", "chat/completions", {"messages": [WITH_FILE]}, NOT_THEIRS),
    ("POST", "messages", SAID, {"token": 200}),
    (
        "POST",
        "messages",
        SAID | {"session_id": "{session}"},
        {"token": 409, "other kernel": 403, "token of another user": 200},
    ),
    ("POST", "messages", SAID | {"container": "{spare}"}, {"token": 200, "other kernel": 403}),
    ("POST", "messages/count_tokens", SAID, {"token": 200}),
    ("POST", "responses", {"input": "hello"}, {"token": 200}),
    (
        "POST",
        "responses",
        {"input": "hello", "session_id": "{session}"},
        {"token": 409, "other kernel": 403, "token of another user": 200},
    ),
    (
        "POST",
        "responses",
        {"input": "hello", "previous_response_id": "{response}"},
        {"token": 200, "token of another user": 400, **dict.fromkeys(OTHER_SUBJECTS, 400)},
    ),
    ("POST", "responses/input_tokens", {"input": "hello"}, {"token": 200}),
    ("GET", "responses/{response}", None, {"token": 200, **OTHER_SUBJECTS}),
    ("GET", "responses/{response}/input_items", None, {"token": 200, **OTHER_SUBJECTS}),
    ("POST", "responses/{response}/cancel", {}, {"token": 200, **OTHER_SUBJECTS}),
    ("DELETE", "responses/none", None, {"token": 404}),
    ("POST", "conversations", {"items": [HELLO]}, {"token": 200}),
    ("GET", "conversations/{spare}", None, {"token": 200, "other kernel": 403}),
    ("POST", "conversations/{spare}", {"metadata": {"topic": "a"}}, {"token": 200, "other kernel": 403}),
    ("DELETE", "conversations/none", None, {"token": 404}),
    ("GET", "conversations/{spare}/items", None, {"token": 200, "other kernel": 403}),
    ("POST", "conversations/{spare}/items", {"items": [HELLO]}, {"token": 200, "other kernel": 403}),
    ("GET", "conversations/{spare}/items/none", None, {"token": 404, "other kernel": 403}),
    ("DELETE", "conversations/{spare}/items/none", None, {"token": 404, "other kernel": 403}),
    ("GET", "search", None, {"token": 200}),
    ("POST", "search/access", {}, {"token": 200, "kernel": 202, "other kernel": 202}),
    ("GET", "sessions", None, {"token": 200}),
    ("POST", "sessions", {"bind": False}, {"token": 201}),
    ("POST", "sessions", {"id": "{spare}", "bind": False}, {"token": 201, "other kernel": 403}),
    ("GET", "sessions/{session}", None, {"token": 200, "other kernel": 403}),
    ("PUT", "sessions/{replaced}", {"messages": []}, {"token": 200, "other kernel": 403, "token of another user": 200}),
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
    (
        "POST",
        "sessions/{busy}/turns",
        {"prompt": "hello"},
        {"token": 202, "other kernel": 403, "token of another user": 202},
    ),
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
    (
        "POST",
        "turns",
        {"prompt": "hello", "inputs": ["{file}"]},
        {"token": 202, "other kernel": 404, "token of another user": 404},
    ),
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
    ("GET", "usage", None, {"token": 200}),
    ("POST", "tools", {"kernel": "{kernel}"}, {"token": 200, "other kernel": 403, **OF_A_KERNEL}),
    ("GET", "models", None, {"token": 200}),
    ("POST", "infill", {"prefix": "x"}, {"token": 200, **PERSON_ONLY}),
    ("GET", "recommendation", None, {"token": 200}),
    ("GET", "model_servers", None, {"token": 200, **PERSON_ONLY}),
    ("POST", "model_servers/probe", {}, {"token": 400, **PERSON_ONLY}),
    ("PUT", "model_servers/mine", {}, {"token": 400, **PERSON_ONLY}),
    ("DELETE", "model_servers/mine", None, {"token": 404, **PERSON_ONLY}),
    ("GET", "models/no-such-model", None, {"token": 404}),
    ("POST", "models/no-such-model/pull", {"consent": True}, {"token": 404}),
    ("PUT", "engine", {"model": "", "session": "{spare}"}, {"token": 200, "other kernel": 403}),
    ("POST", "engine/unload", {}, {"token": 409}),
    ("GET", "metrics", None, {"token": 200, "kernel": 403, "other kernel": 403}),
    ("GET", "health", None, {"token": 200}),
    ("GET", "socket", None, {"token": 400, "kernel": 403, "other kernel": 403}),
    ("GET", "openapi.json", None, {"token": 200}),
    ("GET", "docs", None, {"token": 200}),
]


def expected_status(row: Row, caller: str, opens: frozenset[str]) -> int:
    """Return the status that a row of the table promises for a caller.

    Scopes are those of ``scopes.py``. Rules cover what a row does not list: an unknown caller gets 401, a page of
    another origin 403, a caller with access the same as the server's token, and another user never finds an id.
    """
    method, path, _, statuses = row
    if caller in ("expired token", "revoked token", "wrong lasting token"):
        return 401
    if caller in FOREIGN_PAGES:
        return 403
    if caller in UNKNOWN:
        return 401
    if caller == "login without xsrf" and method != "GET":
        return 403
    if (caller in LASTING and not opens) or (caller == "scoped token" and opens == ALL):
        return 403
    if caller == "token without the scope":
        return 403 if opens != ANY else statuses["token"]
    if caller == "token of another user" and "{" in path:
        return statuses.get(caller, 404)
    return statuses.get(caller, statuses["token"])


def credential_for(caller: str, opens: frozenset[str]) -> str:
    """Return the name of the credential to send. For a token without the scope, it is a token with a scope that does
    not open the route.
    """
    if caller != "token without the scope":
        return caller
    return next((scope for scope in SCOPES if scope not in opens | ALL), "metrics")


def names_in_body(world: World, caller: str) -> dict[str, str]:
    """Return the names for the body. Another user's body gets other names: with the same names it would create
    conversations that later rows find.
    """
    own = ("session", "spare", "busy", "branched") if caller == "token of another user" else ()
    return world.names | {name: f"another {world.names[name]}" for name in own}


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_route_answers_each_caller_as_the_table_says(world: World, row: Row) -> None:
    """One test for each route, not for each caller, because 2,000 tests of one request each take a minute longer."""
    wrong = {
        caller: problems for caller in (*CALLERS, *LASTING, *FOREIGN_PAGES) if (problems := ask(world, row, caller))
    }
    assert wrong == {}


def ask(world: World, row: Row, caller: str) -> list[str]:
    """Send the request of a row as this caller. Return the list of what is wrong with the response."""
    method, path, body, _ = row
    url = f"{PREFIX}/{filled(path, world.names)}"
    named = next(named for pattern, _, named in RULES if re.fullmatch(pattern, url.partition("?")[0]))
    opens = named["scopes"].for_verb(method)
    with world.client(credential_for(caller, opens)) as client:
        reply = client.request(method, url, json=filled(body, names_in_body(world, caller)))
    status = expected_status(row, caller, opens)
    problems = []
    if reply.status_code != status:
        problems.append(f"{reply.status_code} in place of {status}: {reply.text[:500]}")
    if ("WWW-Authenticate" in reply.headers) != (reply.status_code == 401):
        problems.append(f"WWW-Authenticate: {reply.headers.get('WWW-Authenticate')}")
    if "Access-Control-Allow-Origin" in reply.headers:
        problems.append("Access-Control-Allow-Origin")
    if reply.status_code >= 400 and '"jsonrpc"' not in reply.text:  # MCP has its own shape
        error: Json = reply.json()["error"]
        if not error["code"] or not error["message"] or error["request_id"] != reply.headers["X-Request-ID"]:
            problems.append(f"the error is {error}")
    return problems


def test_every_route_names_scopes_that_tokens_can_have() -> None:
    named = [named["scopes"] for _, _, named in RULES]
    sets = [one for scopes in named for one in (scopes.scopes, *scopes.by_verb.values())]
    assert frozenset().union(*sets) <= SCOPES.keys()


def test_the_table_has_every_verb_of_every_route(world: World) -> None:
    asked = {(method, f"{PREFIX}/{filled(path, world.names)}") for method, path, _, _ in TABLE}
    verbs = [
        (verb, route)
        for route, handler in routes()
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
