"""The former path of agent_kernel.core.protocols; imports from here keep working."""

from agent_kernel.core.protocols import *  # noqa: F403
