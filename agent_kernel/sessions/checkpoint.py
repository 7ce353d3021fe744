"""The former path of agent_kernel.sessions.store.pending_write; imports from here keep working."""

from agent_kernel.sessions.store.pending_write import *  # noqa: F403
