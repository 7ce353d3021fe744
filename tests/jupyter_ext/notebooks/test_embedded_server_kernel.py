from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.narrowing import not_none
from tests.server import AgentServer

OWN = {
    "AGENT_KERNEL_ADOPTS": "own-kernel",
    "AGENT_KERNEL_ADOPTS_TOKEN": "the-kernel-knows",
    "AGENT_KERNEL_ADOPTS_NOTEBOOK": "mine.ipynb",
    "JUPYTER_TOKEN": "a-login-of-nobody",
}
SCRIPT: list[dict[str, Any]] = [
    {"when": "look around", "calls": [{"name": "shell", "arguments": {"commands": ["env", "cat /proc/self/environ"]}}]},
    {"text": "Answer.", "loop": True},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    server = AgentServer(tmp_path_factory.mktemp("own"), SCRIPT, env=OWN, input=subprocess.PIPE)
    asyncio.run(server.start())
    yield server
    assert server.process is not None
    not_none(server.process.stdin).close()
    server.sweep()


def kernel(server: AgentServer, token: str = "the-kernel-knows") -> httpx.Client:
    return server.blocking_client({"X-Agent-Kernel-Token": token})


def test_its_credential_opens_the_server_as_a_persons_would(server: AgentServer) -> None:
    with kernel(server) as http:
        binding = http.get("agent/v1/binding").json()
        assert (binding["kernel"], binding["notebook"]) == ("own-kernel", "mine.ipynb")
        assert "AGENT_KERNEL_HIDDEN" in binding["environment"]
        made = http.post("agent/v1/sessions", json={"title": "Another", "bind": False}).json()
        assert http.get(f"agent/v1/sessions/{made['id']}").status_code == 200
        used = http.put("agent/v1/binding", json={"session": made["id"]})
        assert (used.status_code, used.json()["id"]) == (200, made["id"]), "nobody has to confirm it elsewhere"
    with kernel(server, "somebody-else") as http:
        assert http.get("agent/v1/binding").status_code == 401


def test_neither_its_credential_nor_a_login_is_handed_on_to_what_the_agent_runs(server: AgentServer) -> None:
    with kernel(server) as http:
        turn = http.post("agent/v1/turns", json={"prompt": "look around", "where": "sandbox"}).json()["turn"]
        events = http.get(f"agent/v1/turns/{turn}/events").text
    assert "Answer." in events
    assert "PATH=" in events
    assert "the-kernel-knows" not in events
    assert "ADOPTS" not in events
    assert "a-login-of-nobody" not in events


def test_the_server_ends_when_the_kernel_lets_go_of_it(tmp_path: Path) -> None:
    server = AgentServer(tmp_path, SCRIPT, env=OWN, input=subprocess.PIPE)
    asyncio.run(server.start())
    with server:
        assert server.process is not None
        not_none(server.process.stdin).close()
        assert server.process.wait(30) in (0, -15, 143)
        assert "Traceback" not in server.log.read_text()
