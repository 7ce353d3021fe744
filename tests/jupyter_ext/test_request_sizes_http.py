"""Tests requests with more text than the server accepts: each route refuses them in its own format, before a turn."""

from __future__ import annotations

import httpx
import pytest

from jupyter_ext.api.dialects.openai_content import MAX_TEXT
from tests.server import Json

LONG = "x " * (MAX_TEXT // 2 + 1)
MESSAGES = [{"role": "user", "content": LONG}]
REQUESTS: list[tuple[str, Json]] = [
    ("turns", {"prompt": LONG}),
    ("turns", {"prompt": "short", "context": [{"title": "fact", "text": LONG}]}),
    ("turns", {"prompt": LONG[: MAX_TEXT // 2 + 1], "messages": [{"role": "user", "content": LONG[: MAX_TEXT // 2]}]}),
    ("chat/completions", {"model": "default", "messages": MESSAGES}),
    ("responses", {"model": "default", "input": LONG}),
    ("responses", {"model": "default", "input": MESSAGES}),
    ("responses", {"model": "default", "input": "short", "instructions": LONG}),
    ("responses/input_tokens", {"model": "default", "input": LONG}),
    ("conversations", {"items": [{"type": "message", **MESSAGES[0]}]}),
    ("messages", {"model": "default", "max_tokens": 9, "messages": MESSAGES}),
    ("messages/count_tokens", {"model": "default", "messages": MESSAGES}),
]


@pytest.mark.parametrize(("route", "body"), REQUESTS, ids=[f"{route}-{'-'.join(body)}" for route, body in REQUESTS])
async def test_too_much_text_is_refused_with_413_and_starts_no_turn(
    api: httpx.AsyncClient, route: str, body: Json
) -> None:
    before = (await api.get("agent/v1/sessions")).json()["sessions"]
    reply = await api.post(f"agent/v1/{route}", json=body)
    assert reply.status_code == 413, reply.text
    error = reply.json()["error"]
    assert "at most 8388608 characters together" in error["message"]
    assert error["code"] == "request_too_large"
    if "messages" in route:
        assert error["type"] == "request_too_large"
    elif route != "turns":
        assert (error["type"], error["param"]) == ("invalid_request_error", list(body)[-1])
    assert (await api.get("agent/v1/sessions")).json()["sessions"] == before


@pytest.mark.parametrize(
    "body",
    [
        {"context": [{"title": "a", "text": "a"}] * 1_001},
        {"cell": "x" * 5_000},
        {"kernel": "x" * 1_000},
        {"answers": ["a"] * 1_001},
        {"sampling": {"stop": ["x" * 1_001]}},
    ],
    ids=lambda body: next(iter(body)),
)
async def test_a_long_field_of_a_turn_is_refused_by_its_name(api: httpx.AsyncClient, body: Json) -> None:
    reply = await api.post("agent/v1/turns", json={"prompt": "hello", **body})
    assert reply.status_code == 400, reply.text
    assert next(iter(body)) in reply.json()["error"]["message"]


@pytest.mark.parametrize("tags", [["a"] * 101, ["x" * 201], [""]], ids=["many", "long", "empty"])
async def test_tags_of_a_session_are_few_and_short(api: httpx.AsyncClient, tags: list[str]) -> None:
    session = (await api.post("agent/v1/sessions", json={})).json()["id"]
    reply = await api.patch(f"agent/v1/sessions/{session}", json={"tags": tags})
    assert (reply.status_code, "tags" in reply.json()["error"]["message"]) == (400, True)
