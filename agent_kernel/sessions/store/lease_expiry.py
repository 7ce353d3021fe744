"""When a turn may be closed by somebody other than its owner. Pure, but for looking up a pid."""

from __future__ import annotations

from typing import get_args

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import TurnState
from agent_kernel.core.session import LEASE_S, Owner
from agent_kernel.sessions import serialization

REASON = "The server stopped while this turn was running."


def stale(owner: Owner, heartbeat: float, now: float) -> bool:
    """The lease is LEASE_S old, or nobody can be holding it."""
    return now - heartbeat >= LEASE_S or owner.provably_dead(heartbeat)


def check_closing(state: TurnState, reason: str) -> None:
    if state == "open" or state not in get_args(TurnState):
        raise InvalidRequest(f"A turn can not be closed as {state!r}.")
    serialization.text(reason, "reason")
