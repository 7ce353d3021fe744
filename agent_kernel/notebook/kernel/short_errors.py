"""Errors that a person reads as one line, while the notebook still counts the cell as failed (Run All stops)."""

from __future__ import annotations

from agent_kernel.core.errors import AgentKernelError

COMMANDS = {
    "context_overflow": "%agent new starts one.",
    "unknown_model": "%agent model lists what there is; %agent model reset goes back to the server's own.",
}
"""What a person types here after an error of this code. The server does not know that a notebook asks."""


class AgentError(Exception):
    """``str()`` is the whole line; IPython shows it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


class AgentInterrupted(KeyboardInterrupt):
    """The person stopped the turn. A KeyboardInterrupt, so that ``except Exception`` around a magic lets it through."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


def to_short_error(error: AgentKernelError) -> AgentError:
    """What happened and what to do next, in one line."""
    return AgentError(" ".join(f"{error} {COMMANDS.get(error.code, '')}".split()))
