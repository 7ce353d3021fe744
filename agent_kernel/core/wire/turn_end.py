"""Describes to a reader how a turn ended. This module uses the standard library only, because the magic needs it inside
the user's kernel."""

from __future__ import annotations

from agent_kernel.core.events import TurnState

STOPPED_BY_USER = "stopped by the person"
"""The reason of a turn that its user stopped. It is stored with the turn, and clients recognise it by this text."""
_ENDINGS: dict[TurnState, str] = {"failed": "failed", "open": "has not ended"}


def describe_end(state: TurnState, reason: str) -> str:
    """Return a sentence that says how a turn ended that was not committed."""
    if (state, reason) == ("cancelled", STOPPED_BY_USER):
        return "You stopped this turn."
    ended = f"The turn {_ENDINGS.get(state, f'was {state}')}"
    return f"{ended}: {reason.removesuffix('.')}." if reason else f"{ended}."
