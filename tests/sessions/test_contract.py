"""Our own session stores keep the contract."""

from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
