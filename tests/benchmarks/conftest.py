"""Fixtures: how benchmarks record the figures of docs/performance.md, and a server with a local model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from tests.benchmarks import figures
from tests.server import AgentServer


class Record(Protocol):
    def __call__(self, row: str, ours: float, peer: float | None, unit: str) -> None: ...


@pytest.fixture(scope="session")
def record() -> Record:
    """The function that records a figure of the row ``row`` of figures.ROWS: ``record(row, ours, peer, unit)``."""
    return figures.record


@pytest_asyncio.fixture(loop_scope="function")
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AgentServer, None]:
    """A server whose local model is the MODEL of the benchmark's module."""
    with AgentServer(tmp_path, traits={"engine": "local", "model": request.module.MODEL}) as server:
        yield await server.start()
