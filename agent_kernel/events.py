"""The former path of agent_kernel.core.events; imports from here keep working."""

from agent_kernel.core.events import *  # noqa: F403
