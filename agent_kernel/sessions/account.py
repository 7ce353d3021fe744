"""The former path of agent_kernel.sessions.usage_report; imports from here keep working."""

from agent_kernel.sessions.usage_report import *  # noqa: F403
