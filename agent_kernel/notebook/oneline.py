"""Errors that a person reads as one line, while the notebook still counts the cell as failed (Run All stops)."""

from __future__ import annotations

from agent_kernel.errors import AgentKernelError


class AgentError(Exception):
    """``str()`` is the whole line; IPython shows it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


class AgentInterrupted(KeyboardInterrupt):
    """The person stopped the turn. A KeyboardInterrupt, so that ``except Exception`` around a magic lets it through."""

    def _render_traceback_(self) -> list[str]:
        return [f"Agent: {self}"]


def line_of(error: AgentKernelError) -> AgentError:
    """What happened and what to do next, in one line."""
    return AgentError(" ".join(str(error).split()))
