"""The former path of agent_kernel.core.net.guard; imports from here keep working."""

from agent_kernel.core.net.guard import *  # noqa: F403
