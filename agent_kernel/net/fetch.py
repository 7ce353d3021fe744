"""The former path of agent_kernel.core.net.fetch; imports from here keep working."""

from agent_kernel.core.net.fetch import *  # noqa: F403
