"""Fixtures: our stores, a clock that tests set, and an owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.file import Child, Start
from tests.sessions.talk import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owner() -> Owner:
    return Owner.here()


@pytest.fixture(params=["memory", "sqlite", "files"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[SessionStore]:
    """Each of our stores. A store that is added here has to pass test_contract.py."""
    kinds: dict[str, Callable[[], SessionStore]] = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SqliteStore(tmp_path / "s.db", clock=clock),
        "files": lambda: FilesStore(tmp_path / "files", clock=clock),
    }
    made = kinds[request.param]()
    yield made
    await made.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store's file; neither the file nor its directory exists yet."""
    return tmp_path / "data" / "sessions.db"


@pytest.fixture
async def file_store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    await made.aclose()


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """A function that starts another process on the file. Processes that still run at the end of the test are
    killed.
    """
    children: list[Child] = []

    def begin(code: str) -> Child:
        children.append(Child(path, code))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
