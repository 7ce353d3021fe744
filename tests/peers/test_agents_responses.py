"""Tests OpenAI's Agents SDK, unmodified, with ``responses`` of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.test_contracts import HERE, held
from tests.server import TOKEN, AgentServer, Json

ASK = {"name": "weather", "arguments": {"city": "Ulm"}}
RUN = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
LIST = {"name": "shell", "arguments": {"commands": ["echo here"]}}
SCRIPT: list[Json] = [
    {"text": "Hello.", "when": "hello", "loop": True},
    {"text": "Hello.", "when": "and then?", "loop": True},
    *[{"text": "", "calls": [ASK], "when": f"weather {how}"} for how in ("whole", "streamed", "kept")],
    {"text": "Sunny.", "when": "weather", "loop": True},
    *[{"text": "I compute.", "calls": [RUN], "when": f"compute {how}"} for how in ("whole", "streamed")],
    {"text": "It is 42.", "when": "compute", "loop": True},
    *[{"text": "", "calls": [LIST], "when": f"list {how}"} for how in ("whole", "streamed")],
    {"text": "Listed.", "when": "list", "loop": True},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    with AgentServer(tmp_path, SCRIPT) as server:
        yield asyncio.run(server.start())


def test_agents_work_over_responses(agents_python: str, server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SERVER_URL", server.agent_url)
    monkeypatch.setenv("AGENT_SERVER_TOKEN", TOKEN)
    held(agents_python, HERE / "agents_sdk" / "responses_model.py")
