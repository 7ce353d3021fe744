"""The former path of agent_kernel.sessions.contract_tests.grants; imports from here keep working."""

from agent_kernel.sessions.contract_tests.grants import *  # noqa: F403
