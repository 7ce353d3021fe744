"""The former path of agent_kernel.core.errors; imports from here keep working."""

from agent_kernel.core.errors import *  # noqa: F403
