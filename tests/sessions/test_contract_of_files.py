"""Runs the contract of files with our own session stores, also with limits and for private sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.sessions.contract_tests.files import *  # noqa: F403
from agent_kernel.sessions.retention.limited_store import limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PrivateStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.talk import Clock


@pytest.fixture(params=["memory", "sqlite", "files", "limited"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[SessionStore]:
    far = RetentionLimits(ttl=100 * 365 * 86_400, max_sessions=1_000_000, max_history_turns=1_000_000)
    kinds: dict[str, Callable[[], SessionStore]] = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SqliteStore(tmp_path / "s.db", clock=clock),
        "files": lambda: FilesStore(tmp_path / "files", clock=clock),
        "limited": lambda: limit_store(PrivateStore(MemoryStore(clock=clock)), far, clock=clock),
    }
    made = kinds[request.param]()
    yield made
    await made.aclose()
