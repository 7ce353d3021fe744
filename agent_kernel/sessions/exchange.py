"""The former path of agent_kernel.sessions.export.import_export; imports from here keep working."""

from agent_kernel.sessions.export.import_export import *  # noqa: F403
