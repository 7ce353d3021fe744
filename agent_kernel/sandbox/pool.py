"""The former path of agent_kernel.sandbox.host.pool; imports from here keep working."""

from agent_kernel.sandbox.host.pool import *  # noqa: F403
