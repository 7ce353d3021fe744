"""Tests inline completion over HTTP, with an engine that completes code."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from tests.server import start_turn

PREFIX = "def mean(values):\n    return sum(values) / "
SCRIPT: list[dict[str, Any]] = [
    {"infill": "len(values)\nprint()", "deltas": 4, "when": "/ "},
    {"infill": "late", "delay": 30, "when": "wait"},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "Hello.", "loop": True},
]


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


async def test_the_text_grows_to_the_end_of_the_line_and_nothing_is_stored(api: httpx.AsyncClient) -> None:
    found = events(await api.post("agent/v1/infill", json={"prefix": PREFIX}))
    assert found[-1] == {"text": "len(values)", "silence": ""}
    assert len({event["text"] for event in found}) > 1
    assert (await api.get("agent/v1/sessions")).json()["sessions"] == []


async def test_an_engine_that_cannot_complete_code_says_so(api: httpx.AsyncClient) -> None:
    found = events(await api.post("agent/v1/infill", json={"prefix": "another"}))
    assert found == [{"text": "", "silence": "unsupported"}]


async def test_a_text_of_unreasonable_size_is_refused(api: httpx.AsyncClient) -> None:
    assert (await api.post("agent/v1/infill", json={"prefix": "x" * 20_001})).status_code == 400


async def test_code_is_not_completed_while_a_turn_runs(api: httpx.AsyncClient) -> None:
    turn = (await start_turn(api, "hang"))["turn"]
    started = time.monotonic()
    found = events(await api.post("agent/v1/infill", json={"prefix": PREFIX}))
    assert found == [{"text": "", "silence": "busy"}]
    assert time.monotonic() - started < 30
    await api.post(f"agent/v1/turns/{turn}/cancel", json={})
