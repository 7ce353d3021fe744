"""The former path of agent_kernel.sessions.contract_tests.files; imports from here keep working."""

from agent_kernel.sessions.contract_tests.files import *  # noqa: F403
