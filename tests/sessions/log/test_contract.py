"""Stores on a shared log keep the whole contract of our own session stores."""

from agent_kernel.sessions.contract_tests.files import *  # noqa: F403
from agent_kernel.sessions.contract_tests.grants import *  # noqa: F403
from agent_kernel.sessions.contract_tests.maintenance import *  # noqa: F403
from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
