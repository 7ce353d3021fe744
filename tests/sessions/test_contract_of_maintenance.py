"""Our own session stores can be maintained, and their sessions can expire."""

from agent_kernel.sessions.contract_tests.maintenance import *  # noqa: F403
