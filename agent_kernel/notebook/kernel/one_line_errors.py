"""Defines errors that IPython displays as one line without a traceback. The cell still counts as failed, so Run All
stops."""

from __future__ import annotations

from agent_kernel.core.errors import AgentKernelError

COMMANDS = {
    "context_overflow": "%agent new starts one.",
    "unknown_model": "%agent model lists the models; %agent model reset returns to the server's own.",
}
"""Maps the code of an error of the server to a command that the user can type. The text is added here, because the
server does not know that its client is a notebook."""


class AgentError(Exception):
    """An error that IPython displays as one line, without a traceback. ``str()`` returns this line."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


class AgentInterrupted(KeyboardInterrupt):
    """The user stopped the turn. Derives from KeyboardInterrupt, so that ``except Exception`` around a magic does
    not catch it."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


def to_short_error(error: AgentKernelError) -> AgentError:
    """Return the error as one line: its message, followed by its hint."""
    return AgentError(" ".join(f"{error} {COMMANDS.get(error.code, '')}".split()))
