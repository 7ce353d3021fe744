"""The contract of a SessionStore: every test of it, and the fixtures ``clock`` and ``owner``.

The fixture ``store`` is the implementation's own: an empty store that takes its time (seconds since the epoch) from
the fixture ``clock``, closed after the test. Nothing here knows how a store keeps things.
"""

from __future__ import annotations

import pytest

from agent_kernel.core.session import Owner
from agent_kernel.sessions.contract_tests.bindings import *  # noqa: F403
from agent_kernel.sessions.contract_tests.branch_end import *  # noqa: F403
from agent_kernel.sessions.contract_tests.branches import *  # noqa: F403
from agent_kernel.sessions.contract_tests.call_pairs import *  # noqa: F403
from agent_kernel.sessions.contract_tests.dsl import Clock
from agent_kernel.sessions.contract_tests.external_programs import *  # noqa: F403
from agent_kernel.sessions.contract_tests.history import *  # noqa: F403
from agent_kernel.sessions.contract_tests.insertion import *  # noqa: F403
from agent_kernel.sessions.contract_tests.search import *  # noqa: F403
from agent_kernel.sessions.contract_tests.sessions import *  # noqa: F403
from agent_kernel.sessions.contract_tests.summaries import *  # noqa: F403
from agent_kernel.sessions.contract_tests.turns import *  # noqa: F403

pytestmark = pytest.mark.asyncio


@pytest.fixture
def clock() -> Clock:
    """Stands still until a test moves it."""
    return Clock()


@pytest.fixture
def owner() -> Owner:
    """This process."""
    return Owner.here()
