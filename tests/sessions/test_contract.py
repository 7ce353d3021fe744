"""Our own session stores keep the contract."""

from agent_kernel.contracts.session_store import *  # noqa: F403
