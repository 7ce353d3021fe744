"""Sends every method to every route, with random bodies, headers and ids."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import strategies as st

from jupyter_ext.api.routes import routes
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import KERNEL_HEADER, TOKEN, AgentServer
from tests.soak.conftest import Soak
from tests.soak.hostile import ODD, deep, mutated, text, until_over, value
from tests.soak.server_state import check_store, descriptors, memory_mb

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND")
READ_S = 0.3
ANSWER_S = 60.0
GROWTH_MB = 250
DIALECTS = re.compile(r"/v1/(chat/completions|conversations|responses|messages)")
LEAKS = ("Traceback", 'File "', "site-packages", "jupyter_ext/", "agent_kernel/", "sqlite3.")
TURN: dict[str, Any] = {
    "prompt": "hello",
    "session": "fuzz-1",
    "kernel": "",
    "where": "sandbox",
    "permission": "auto",
    "context": [{"title": "fact", "text": "1"}],
    "cell": "c1",
    "answers": ["*"],
    "client_tools": ["python"],
    "sampling": {"temperature": 0, "top_p": 0.9, "seed": 1, "max_tokens": 5, "stop": ["x"]},
    "max_tool_rounds": 1,
    "queue": True,
    "model": "default",
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT: dict[str, Any] = {
    "model": "agent/default",
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "w"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "aGk="}},
            ],
        },
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "user", "content": "hello"},
    ],
    "stream": False,
    "stream_options": {"include_usage": True},
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": CITY}},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "code_interpreter"}]},
    },
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": CITY}},
    "temperature": 1,
    "stop": ["x"],
    "max_tokens": 5,
    "logprobs": True,
    "top_logprobs": 1,
    "web_search_options": {"search_context_size": "low", "filters": {"allowed_domains": ["a.org"]}},
    "session_id": "fuzz-3",
    "max_tool_rounds": 1,
    "enable_shell": True,
    "agent_permission": "auto",
    "files": [{"name": "a.txt", "format": "txt"}],
}
CLAIM = {"call": "call_1", "client": "fuzz"}
FINISH = {
    "action": "finish", "token": "x", "status": "success", "text": "y", "stream": "stdout", "shown": True,
    "media": [{"mime": "image/png", "data": "iVBORw0KGgo="}],
}  # fmt: skip
RIGHT: dict[str, Any] = {
    "turns": TURN,
    "completions": CHAT,
    "cancel": {"reason": "fuzz"},
    "claims": CLAIM,
    "approvals": {"decision": "approve", "reason": "fuzz"},
    "sessions": {"id": "fuzz-2", "title": "A title", "bind": True},
    "binding": {"session": "fuzz-1"},
    "pull": {"consent": True},
}
SCRIPT: list[dict[str, Any]] = [
    {"when": "slow", "text": "word " * 40, "deltas": 40, "delay": 0.05, "loop": True},
    {"text": "Hello.", "calls": [{"name": "python", "arguments": {"code": "1 + 1"}}], "loop": True},
]


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``ids`` fill the groups of the route; a non-zero entry of ``picks`` uses an existing id instead."""

    route: str
    method: str
    ids: list[str]
    picks: list[int]
    body: bytes
    headers: dict[str, str]
    query: str


@dataclass
class Target:
    """A server, the ids that exist in it, and a client."""

    server: AgentServer
    tokens: tuple[str, ...]
    http: httpx.Client
    ids: list[str] = field(default_factory=list)
    turns: int = 0

    def path(self, pattern: str, ids: list[str]) -> str:
        """Return a route with its groups filled; sometimes with an id that exists."""
        drawn = iter(ids)

        def fill(group: re.Match[str]) -> str:
            given = next(drawn).encode("utf-8", "replace")
            return hashlib.sha256(given).hexdigest() if "64" in group[0] else quote(given, safe="")

        return re.sub(r"\(\[(?:[^()]*)\)", fill, pattern)

    def send(self, request: Request, path: str) -> tuple[httpx.Response, bytes]:
        """Send the request. A stream lasts as long as its turn does, so it is left after READ_S seconds."""
        read, streams = b"", request.route.endswith(("/events", "/pull"))
        with self.http.stream(
            request.method,
            path.lstrip("/"),
            content=request.body,
            headers=request.headers,
            timeout=httpx.Timeout(ANSWER_S, read=READ_S if streams else ANSWER_S),
        ) as reply:
            try:
                for piece in reply.iter_bytes():
                    read += piece
            except httpx.ReadTimeout:
                assert reply.headers["Content-Type"].startswith("text/event-stream"), f"{path} hangs"
            return reply, read

    def learn(self, read: bytes) -> None:
        """Remember ids from responses, to use them again."""
        found = re.findall(rb'"(?:turn|id|session|approval|call|token|pending)": ?"([^"]{1,80})"', read)
        self.ids += [one.decode(errors="replace") for one in found[:4]]
        del self.ids[:-200]

    def check(self, request: Request) -> None:
        known = [
            self.ids[pick % len(self.ids)] if pick and self.ids else one
            for one, pick in zip(request.ids, request.picks, strict=True)
        ]
        path = self.path(request.route, known) + request.query
        try:
            reply, read = self.send(request, path)
        except httpx.ReadTimeout:
            assert request.route.endswith(("/events", "/pull")), f"{request.method} {path} gives no answer"
            return
        status = reply.status_code
        told = f"{request.method} {path[:300]} {request.headers} {request.body[:500]!r} -> {status} {read[:2000]!r}"
        assert status < 500 or status == 503, told
        said = read.decode(errors="replace")
        # What was sent may be said again, for example as a prompt; it is none of ours then.
        sent = (request.body + path.encode()).decode(errors="replace")
        assert not [leak for leak in LEAKS if leak in said and leak not in sent], told
        if status >= 400 and request.method != "HEAD" and "text/html" not in reply.headers.get("Content-Type", ""):
            fields = set(json.loads(read)["error"])
            mcp = request.route.endswith("/mcp") and fields <= {"code", "message", "data"}  # JSON-RPC has its own shape
            dialect = DIALECTS.search(request.route) and {"message", "type"} <= fields  # so has each other house
            assert mcp or dialect or fields >= {"code", "message", "hint", "request_id", "details"}, told
        elif status >= 400 and request.method != "HEAD":  # whose answer has no body to look at
            assert status in (403, 404, 405), told  # of Jupyter: the path is none of ours
        self.learn(read)
        self.turns += status == 202 and request.route.endswith("/turns")


def body_for(route: str) -> st.SearchStrategy[bytes]:
    """Draw a body for this route: nearly valid, or any other."""
    last = route.rsplit("/", 1)[-1]
    name = last if last in RIGHT else next((part for part in reversed(route.split("/")) if part in RIGHT), "turns")
    right = FINISH if route.endswith("claims/([^/]+)") else RIGHT[name]
    return st.one_of(
        st.just(as_bytes(right)),
        st.just(b""),
        *[mutated(right).map(as_bytes)] * 4,
        value.map(as_bytes),
        st.binary(max_size=200),
        st.sampled_from([b"", b"{", deep(500), deep(100_000), b'{"a":' * 5_000 + b"1" + b"}" * 5_000, BIG]),
    )


BIG = b'{"prompt": "' + b"x" * (2 << 20) + b'"}'


def as_bytes(given: Any) -> bytes:
    return json.dumps(given, default=str).encode()


def header_values() -> st.SearchStrategy[str]:
    """Draw values that HTTP allows in a header."""
    allowed = [one for one in ODD if one.isascii() and one.isprintable() and len(one) < 1000]
    odd = st.sampled_from(allowed) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
    return odd.map(str.strip)  # what HTTP strips is refused by the client already


def headers_for(tokens: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    who = st.one_of(
        *[st.just({"Authorization": f"token {TOKEN}"})] * 6,
        st.just({"x-api-key": TOKEN}),
        st.sampled_from([{KERNEL_HEADER: token} for token in tokens]),
        st.builds(lambda token: {KERNEL_HEADER: token}, header_values()),
        st.just({}),
    )
    more = st.dictionaries(
        st.sampled_from(
            ["X-Request-ID", "Last-Event-ID", "Content-Type", "Accept", "Cookie", "Origin", "Referer", "If-None-Match"]
        ),
        header_values(),
        max_size=2,
    )
    return st.builds(lambda first, second: first | second, who, more)


queries = st.one_of(
    st.just(""),
    st.builds(
        lambda name, given: f"?{name}=" + quote(given.encode("utf-8", "replace")[:2000]),
        st.sampled_from(["after", "limit", "kernel", "path", "session", "token"]),
        text | st.integers(-5, 2**40).map(str),
    ),
)


def fuzz(soak: Soak, target: Target) -> None:
    # The longest ids still fit into a request line; longer ones are the web server's to refuse.
    ids = text.map(lambda one: one[:600] or "x")
    served = {
        pattern: [method for method in METHODS if method.lower() in vars(handler)] for pattern, handler in routes()
    }
    requests = st.sampled_from(list(served)).flatmap(
        lambda route: st.builds(
            Request,
            route=st.just(route),
            method=st.one_of(*[st.sampled_from(served[route])] * 4, st.sampled_from(METHODS)),
            ids=st.lists(ids, min_size=2, max_size=2),
            picks=st.lists(st.integers(0, 200), min_size=2, max_size=2),
            body=body_for(route),
            headers=headers_for(target.tokens),
            query=queries,
        )
    )
    until_over(soak, "requests", {"request": requests}, target.check, soak.seconds)


@pytest.mark.soak(0.15)
async def test_fuzz_http(soak: Soak, agent_server: ServerFactory) -> None:
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    server = await agent_server(SCRIPT, env=nowhere, traits={"sources": "hub"})
    kernels = [await server.start_kernel(name) for name in ("a.ipynb", "b.ipynb")]
    tokens = tuple([await server.kernel_token(kernel) for kernel in kernels])
    pid = server.pid
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        target = Target(server, tokens, http, ids=[*kernels])
        before_mb, before_fds = memory_mb(pid), descriptors(pid)
        soak.begin()
        await asyncio.to_thread(fuzz, soak, target)
        soak.counts["turns started"] = target.turns
    async with server.client() as client:
        assert (await client.get("api/status")).status_code == 200
        health = (await client.get("agent/v1/health")).json()
        assert health["status"] == "ok", health
    assert server.process is not None
    assert server.process.poll() is None, "the server ended"
    grown = memory_mb(pid) - before_mb
    soak.counts["MB that the server grew"] = int(grown)
    assert grown < GROWTH_MB, f"the server grew by {grown:.0f} MB"
    soak.counts["descriptors more than before"] = max(0, descriptors(pid) - before_fds)
    log = server.log.read_text(errors="replace")
    assert "Uncaught exception" not in log, log[log.index("Uncaught exception") :][:4000]
    assert await server.stop() == 0
    assert soak.counts["turns started"], "nothing that was sent was right"
    store = server.directory / "data" / "sessions.db"
    soak.counts.update(await asyncio.to_thread(check_store, store, taken_back=True))
