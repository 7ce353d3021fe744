"""When a loaded model must go: nobody asked for long, or the memory is needed for a person's own programs. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_kernel.engines.local.catalog.requantize_progress import megabytes
from agent_kernel.engines.local.system_memory import Memory

IDLE_UNLOAD_S = 1800.0
CHECK_S = 1.0
CRITICAL = 4
"""At a quarter of the reserve the worker ends at once, whatever it does."""
PATIENCE = 2
"""Readings in a row below the reserve before anything is done: a program that only starts is let be."""


@dataclass(frozen=True, slots=True)
class UnloadDecision:
    """``unload`` when nothing runs; ``refuse`` new requests while some run; ``leave`` at once."""

    what: Literal["stay", "unload", "refuse", "leave"]
    why: str = ""


STAY = UnloadDecision("stay")


class UnloadPolicy:
    """``idle_s`` 0: never unloaded for being idle. ``read`` gives the memory, None where it is not known."""

    def __init__(
        self,
        idle_s: float,
        reserve_gb: float,
        read: Callable[[], Memory | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle_s = idle_s
        self._reserve_gb = reserve_gb
        self._read = read
        self._clock = clock
        self._touched = clock()
        self._low = 0

    def touch(self) -> None:
        """A request came, or ended."""
        self._touched = self._clock()

    def verdict(self, *, busy: bool) -> UnloadDecision:
        """To be asked every CHECK_S seconds. ``busy``: a request runs, or the model is being loaded."""
        memory = self._read()
        if memory is not None:
            reserve = memory.reserve(self._reserve_gb)
            self._low = self._low + 1 if memory.available < reserve else 0
            why = f"{megabytes(memory.available)} of memory were left, and {megabytes(reserve)} are kept for you"
            if memory.available < reserve // CRITICAL:
                return UnloadDecision("leave", why)
            if self._low >= PATIENCE:
                return UnloadDecision("refuse" if busy else "unload", why)
        if not busy and self._idle_s and self._clock() - self._touched >= self._idle_s:
            return UnloadDecision("unload", f"nobody asked for {self._idle_s / 60:.0f} min")
        return STAY
