"""The former path of agent_kernel.sessions.adapters.selectools; imports from here keep working."""

from agent_kernel.sessions.adapters.selectools import *  # noqa: F403
