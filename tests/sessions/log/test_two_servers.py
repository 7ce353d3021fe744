"""Two real servers on one PostgreSQL: a conversation goes on at either, and nobody is shown the URL of the database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.jupyter_ext.conftest import HELLO
from tests.server import AgentServer, followed, start_turn
from tests.sessions.log.servers import Postgres

pytestmark = pytest.mark.stores
SECRET = "pass-word-of-ann"


@pytest.fixture
async def servers(postgres: Postgres, tmp_path: Path) -> AsyncIterator[list[AgentServer]]:
    store = postgres.fresh().replace("postgres:@", f"postgres:{SECRET}@")
    assert SECRET in store
    runtime = os.environ["XDG_RUNTIME_DIR"]
    made = [
        AgentServer(tmp_path / name, [HELLO], env={"AGENT_KERNEL_STORE": store, "XDG_RUNTIME_DIR": runtime})
        for name in ("one", "two")
    ]
    try:
        yield [await server.start() for server in made]
    finally:
        for server in made:
            server.sweep()


async def test_a_conversation_goes_on_at_another_server(servers: list[AgentServer]) -> None:
    for number, server in enumerate(servers):
        async with server.client() as client:
            turn = await start_turn(client, f"Question {number}", session="shared")
            assert (await followed(client, turn["turn"]))[-1]["type"] == "turn.finished"
    for server in servers:
        async with server.client() as client:
            shown = (await client.get("agent/v1/sessions/shared/items")).text
        assert "Question 0" in shown
        assert "Question 1" in shown


async def test_kernels_and_logs_do_not_have_the_url_of_the_database(servers: list[AgentServer]) -> None:
    server = servers[0]
    given = await server.kernel_environment(await server.start_kernel())
    assert "AGENT_KERNEL_STORE" not in given
    assert SECRET not in str(given)
    assert SECRET not in server.log.read_text()
    assert "sessions in postgresql:" in server.log.read_text()
