"""Runs the contract of maintenance and expiry with our own session stores."""

from agent_kernel.sessions.contract_tests.maintenance import *  # noqa: F403
