"""All tests of the contract of a SessionStore, and the fixtures ``clock``, ``owner`` and ``talk`` that they need.

The implementation provides the fixture ``store``: an empty store that takes its time (seconds since the epoch) from the
fixture ``clock`` and is closed after the test. The tests do not depend on how a store keeps its data.
"""

from __future__ import annotations

import pytest
import pytest_asyncio

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner
from agent_kernel.sessions.contract_tests.branch_end import *  # noqa: F403
from agent_kernel.sessions.contract_tests.branches import *  # noqa: F403
from agent_kernel.sessions.contract_tests.fixtures import Clock, Talk
from agent_kernel.sessions.contract_tests.history import *  # noqa: F403
from agent_kernel.sessions.contract_tests.insertion import *  # noqa: F403
from agent_kernel.sessions.contract_tests.search import *  # noqa: F403
from agent_kernel.sessions.contract_tests.sessions import *  # noqa: F403
from agent_kernel.sessions.contract_tests.snapshots import *  # noqa: F403
from agent_kernel.sessions.contract_tests.summaries import *  # noqa: F403
from agent_kernel.sessions.contract_tests.turns import *  # noqa: F403

pytestmark = pytest.mark.asyncio


@pytest.fixture
def clock() -> Clock:
    """Return a clock that shows the same time until a test changes it."""
    return Clock()


@pytest.fixture
def owner() -> Owner:
    """Return an owner that stands for this process."""
    return Owner.here()


@pytest_asyncio.fixture
async def talk(store: SessionStore, owner: Owner) -> Talk:
    """Create a session with an open turn, and return the Talk that writes to it."""
    return await Talk.begin(store, owner)
