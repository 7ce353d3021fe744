"""The former path of agent_kernel.sessions.adapters.openai_agents; imports from here keep working."""

from agent_kernel.sessions.adapters.openai_agents import *  # noqa: F403
