"""Runs in an environment with the real openai-agents; ``tests/peers/test_contracts.py`` starts it there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import set_tracing_disabled

from agent_kernel.sessions.adapters.openai_agents import AgentsSession

set_tracing_disabled(True)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AgentsSession]:
    made = AgentsSession("s", tmp_path / "sessions.db")
    yield made
    made.close()
