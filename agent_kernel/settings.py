"""The former path of agent_kernel.core.settings; imports from here keep working."""

from agent_kernel.core.settings import *  # noqa: F403
