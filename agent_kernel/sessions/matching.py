"""The former path of agent_kernel.sessions.conversation_match; imports from here keep working."""

from agent_kernel.sessions.conversation_match import *  # noqa: F403
