"""Decides when a turn that another process opened may be closed. The only side effect is the look-up of a process
id."""

from __future__ import annotations

from typing import get_args

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import TurnState
from agent_kernel.core.session import LEASE_S, Owner
from agent_kernel.sessions import serialization

REASON = "The server stopped while this turn was running."


def is_stale(owner: Owner, heartbeat: float, now: float) -> bool:
    """Return whether the lease of a turn has expired: its last ``heartbeat`` is LEASE_S seconds or more before ``now``,
    or its owner is provably dead."""
    return now - heartbeat >= LEASE_S or owner.is_provably_dead(heartbeat)


def check_closing(state: TurnState, reason: str) -> None:
    if state == "open" or state not in get_args(TurnState):
        raise InvalidRequest(f"A turn cannot be closed as {state!r}.")
    serialization.text(reason, "reason")
