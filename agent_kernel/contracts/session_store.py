"""The former path of agent_kernel.sessions.contract_tests.suite; imports from here keep working."""

from agent_kernel.sessions.contract_tests.suite import *  # noqa: F403
