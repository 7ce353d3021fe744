"""Tests the promises of the OpenAPI document with requests drawn from it and every check of schemathesis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fuzzed import closed, grounded, run
from tests.server import AgentServer, followed, start_turn

Json = dict[str, Any]
SEED = 7
ENV = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
SCRIPT: list[Json] = [{"text": "Hello.", "loop": True}]


TRAITS = {"sources": "wheels"}


async def document(server: AgentServer) -> Json:
    async with server.client() as client:
        told: Json = (await client.get("agent/v1/openapi.json")).json()
    return closed(told)


async def create_objects(server: AgentServer) -> dict[str, list[str]]:
    """Create sessions, turns and files. Return their ids by the parameter names of paths; requests delete
    some of them.
    """
    async with server.client() as client:
        sessions = [f"fuzzed {number}" for number in range(6)]
        turns = [(await start_turn(client, "hello", session=session))["turn"] for session in sessions]
        for turn in turns:
            await followed(client, turn)
        form = {"purpose": "user_data", "session": sessions[0]}
        sent = [{"file": (f"{number}.txt", b"hello")} for number in range(3)]
        files = [(await client.post("agent/v1/files", files=one, data=form)).json()["id"] for one in sent]
    return {"session_id": sessions, "turn_id": turns, "id of files": files, "id of containers": files}


@pytest.mark.slow
async def test_every_answer_is_one_that_the_document_promises(server: AgentServer, tmp_path: Path) -> None:
    options = ["--phases", "examples,fuzzing"]
    report = await run(server, await document(server), tmp_path, examples=2, seed=SEED, options=options)
    report.check(at_least=150)


@pytest.mark.slow
async def test_also_of_what_is_there(server: AgentServer, tmp_path: Path) -> None:
    told = grounded(await document(server), await create_objects(server))
    names = r"/(sessions|turns|files|containers)/"
    options = ["--phases", "fuzzing", "--mode", "positive", "--include-path-regex", names]
    report = await run(server, told, tmp_path, examples=3, seed=SEED, options=options)
    report.check(at_least=60)
