"""Runs the whole contract of session stores on shared logs."""

from agent_kernel.sessions.contract_tests.files import *  # noqa: F403
from agent_kernel.sessions.contract_tests.grants import *  # noqa: F403
from agent_kernel.sessions.contract_tests.maintenance import *  # noqa: F403
from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
