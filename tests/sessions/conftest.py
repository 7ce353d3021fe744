"""Both stores behind one fixture, a clock that tests move, and an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_kernel.protocols import SessionStore
from agent_kernel.sessions.memory import MemoryStore
from agent_kernel.sessions.model import Owner
from agent_kernel.sessions.sqlite import SqliteStore
from tests.sessions.talk import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owner() -> Owner:
    return Owner.here()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[SessionStore]:
    """Add a store here and test_contract.py holds it to the protocol."""
    made: SessionStore = (
        MemoryStore(clock=clock) if request.param == "memory" else SqliteStore(tmp_path / "s.db", clock=clock)
    )
    yield made
    await made.aclose()
