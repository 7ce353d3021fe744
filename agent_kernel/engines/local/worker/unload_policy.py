"""Decides when a loaded model must be unloaded: it has been idle for long, or the user's own programs need the
memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_kernel.engines.local.catalog.pull_stages import megabytes
from agent_kernel.engines.local.system_memory import Memory

IDLE_UNLOAD_S = 1800.0
CHECK_S = 1.0
CRITICAL = 4
"""Divisor of the reserve. If less than the reserve divided by this number is available, the worker ends at once, even
while requests run."""
PATIENCE = 2
"""Number of consecutive readings below the reserve before the policy acts, so that the short peak of a program that is
starting does not unload the model."""


@dataclass(frozen=True, slots=True)
class UnloadDecision:
    """A decision about a loaded model, and its reason ``why``. ``stay``: the model stays loaded. ``unload``: unload
    it, since no request runs. ``refuse``: refuse new requests, since some are running. ``abort``: unload it at once
    and end all requests."""

    what: Literal["stay", "unload", "refuse", "abort"]
    why: str = ""


STAY = UnloadDecision("stay")


class UnloadPolicy:
    """Decides when to unload a model. With ``idle_s`` 0, an idle model is never unloaded. ``read`` returns the memory
    of the machine, or None if it is unknown."""

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
        """Record that a request arrived or ended."""
        self._touched = self._clock()

    def verdict(self, *, busy: bool) -> UnloadDecision:
        """Return the decision. Must be called every CHECK_S seconds. ``busy`` means that a request is running, or that
        the model is being loaded."""
        memory = self._read()
        if memory is not None:
            reserve = memory.reserve(self._reserve_gb)
            self._low = self._low + 1 if memory.available < reserve else 0
            why = (
                f"{megabytes(memory.available)} of memory are available, and {megabytes(reserve)} are reserved for you"
            )
            if memory.available < reserve // CRITICAL:
                return UnloadDecision("abort", why)
            if self._low >= PATIENCE:
                return UnloadDecision("refuse" if busy else "unload", why)
        if not busy and self._idle_s and self._clock() - self._touched >= self._idle_s:
            return UnloadDecision("unload", f"there was no request for {self._idle_s / 60:.0f} min")
        return STAY
