"""The contract of a SessionStore: every test of it, and the fixtures ``clock`` and ``owner``.

The fixture ``store`` is the implementation's own: an empty store that takes its time (seconds since the epoch) from
the fixture ``clock``, closed after the test. Nothing here knows how a store keeps things.
"""

from __future__ import annotations

import pytest

from agent_kernel.contracts.session_bindings import *  # noqa: F403
from agent_kernel.contracts.session_branches import *  # noqa: F403
from agent_kernel.contracts.session_history import *  # noqa: F403
from agent_kernel.contracts.session_pairs import *  # noqa: F403
from agent_kernel.contracts.session_places import *  # noqa: F403
from agent_kernel.contracts.session_programs import *  # noqa: F403
from agent_kernel.contracts.session_search import *  # noqa: F403
from agent_kernel.contracts.session_sessions import *  # noqa: F403
from agent_kernel.contracts.session_summaries import *  # noqa: F403
from agent_kernel.contracts.session_tail import *  # noqa: F403
from agent_kernel.contracts.session_turns import *  # noqa: F403
from agent_kernel.contracts.talk import Clock
from agent_kernel.sessions.model import Owner

pytestmark = pytest.mark.asyncio


@pytest.fixture
def clock() -> Clock:
    """Stands still until a test moves it."""
    return Clock()


@pytest.fixture
def owner() -> Owner:
    """This process."""
    return Owner.here()
