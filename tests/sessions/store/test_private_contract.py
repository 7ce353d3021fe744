"""Runs the store's contract on a store that also has private sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.sessions.contract_tests.maintenance import *  # noqa: F403
from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PrivateStore
from tests.sessions.talk import Clock


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[SessionStore]:
    made = PrivateStore(MemoryStore(clock=clock))
    yield made
    await made.aclose()
