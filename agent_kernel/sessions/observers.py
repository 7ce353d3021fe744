"""The former path of agent_kernel.turn.observers; imports from here keep working."""

from agent_kernel.turn.observers import *  # noqa: F403
