"""Defines the interface for trying programs. Several programs run one after another on the same state, and the effects
of each are undone, so that their outcomes can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.protocols import ToolContext


@runtime_checkable
class ProgramTrials(Protocol):
    """A tool that can try programs in the place where its calls run."""

    async def try_programs(
        self, programs: Sequence[str], names: Sequence[str], context: ToolContext
    ) -> list[ProgramOutcome]:
        """Run each program on the current state, and undo its effects. ``names`` are the variables whose contents are
        compared if a program creates them. Returns the outcomes in order: fewer than programs if time ran out, and none
        if programs cannot be tried here."""
        ...
