"""Both stores behind one fixture, a clock that tests move, and an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent_kernel.sessions.memory import MemoryStore
from agent_kernel.sessions.model import Owner
from agent_kernel.sessions.sqlite import SqliteStore
from agent_kernel.sessions.store import SessionStore
from tests.sessions.file import Child, Start
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store's file will be; neither it nor its directory is there yet."""
    return tmp_path / "data" / "sessions.db"


@pytest.fixture
async def file_store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    await made.aclose()


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts other processes on the file; those that are still running at the end of the test are killed."""
    children: list[Child] = []

    def begin(code: str) -> Child:
        children.append(Child(path, code))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
