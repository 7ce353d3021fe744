"""Runs the contract with our own session stores."""

from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
