"""Runs the store's contract with limits too high to take effect."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
from agent_kernel.sessions.retention.limited_store import limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import Clock


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[SessionStore]:
    far = RetentionLimits(ttl=100 * 365 * 86_400, max_sessions=1_000_000, max_history_turns=1_000_000)
    made = limit_store(MemoryStore(clock=clock), far, clock=clock)
    yield made
    await made.aclose()
