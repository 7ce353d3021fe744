"""The former path of agent_kernel.core.session; imports from here keep working."""

from agent_kernel.core.session import *  # noqa: F403
