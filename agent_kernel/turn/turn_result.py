"""Defines the outcome of a turn, as ``Agent.run`` returns it."""

from __future__ import annotations

from dataclasses import dataclass

from agent_kernel.core.errors import AgentKernelError, TurnStopped
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Usage


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The outcome of a turn.

    ``text`` is the closing answer. ``error`` is set if the state is failed. ``saved`` counts the items that the turn
    wrote to the store: the part of the request that the input hook kept, and everything the turn produced.

    A failed turn has a result too, because its messages up to the failure are stored: check ``state``, or call
    ``raise_for_state``."""

    turn: str
    state: TurnState
    text: str
    usage: Usage
    rounds: int
    error: AgentKernelError | None = None
    saved: int = 0

    def raise_for_state(self) -> TurnResult:
        """Return this result if the turn was committed. Raises the turn's ``error`` if it failed, else TurnStopped."""
        if self.error is not None:
            raise self.error
        if self.state != "committed":
            raise TurnStopped(f"The turn was {self.state}.", details={"turn": self.turn, "state": self.state})
        return self
