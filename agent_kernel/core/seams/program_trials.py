"""The seam for trying programs: running several programs on the same state, each without effect, to compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agent_kernel.core.program_outcome import ProgramOutcome
from agent_kernel.core.protocols import ToolContext


@runtime_checkable
class ProgramTrials(Protocol):
    """A tool that can try programs where its calls run."""

    async def try_programs(
        self, programs: Sequence[str], names: Sequence[str], context: ToolContext
    ) -> list[ProgramOutcome]:
        """Run each program on the present state and undo it. ``names`` are variables whose contents count if a program
        creates them. Returns the outcomes in order; fewer if time ran out, none where nothing can be tried."""
        ...
