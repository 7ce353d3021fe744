"""Sends ten thousand requests drawn from the server's OpenAPI document, with every check of schemathesis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fuzzed import closed, run
from tests.jupyter_ext.conftest import ServerFactory
from tests.soak.conftest import Soak
from tests.soak.server_state import descriptors, memory_mb

EXAMPLES = 12
"""Of each operation, beside those of the coverage phase: more than ten thousand requests in all."""
WHOLE_S = 240.0
"""Of the time of all soaks; with less there are fewer examples."""
GROWTH_MB = 40
NOWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
SCRIPT: list[dict[str, Any]] = [{"text": "Hello.", "loop": True}]


@pytest.mark.soak(0.1)
async def test_openapi(soak: Soak, agent_server: ServerFactory, tmp_path: Path) -> None:
    server = await agent_server(SCRIPT, env=NOWHERE, traits={"sources": "wheels"})
    async with server.client() as client:
        document = closed((await client.get("agent/v1/openapi.json")).json())
    warm = await run(server, document, tmp_path / "warm", examples=1, seed=soak.seed, options=["--phases", "fuzzing"])
    warm.check(at_least=50)
    before, open_before = memory_mb(server.pid), descriptors(server.pid)
    soak.begin()
    share = min(1.0, soak.seconds / WHOLE_S)
    phases = [] if share == 1.0 else ["--phases", "examples,fuzzing,stateful"]
    report = await run(
        server, document, tmp_path / "run", examples=max(1, round(EXAMPLES * share)), seed=soak.seed, options=phases
    )
    soak.counts["requests"] = report.generated
    report.check(at_least=10_000 if share == 1.0 else 100)
    grown = memory_mb(server.pid) - before
    soak.counts["MB that the server grew"] = max(0, int(grown))
    assert grown < GROWTH_MB, f"the server grew by {grown:.0f} MB"
    assert descriptors(server.pid) - open_before < 50
    log = server.log.read_text(errors="replace")
    assert "Uncaught exception" not in log, log[log.index("Uncaught exception") :][:4000]
    assert "Traceback" not in log, log[log.index("Traceback") :][:4000]
