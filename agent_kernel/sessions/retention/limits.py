"""Defines the limits on how many sessions are stored and for how long, but does not apply them: ``retention.py``
deletes sessions beyond the limits, and ``limited_store.py`` hides sessions and turns beyond them from readers.
Also parses and formats the durations of these limits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import FROM_PRESET, Settings

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds per unit. A day always has 24 hours."""
LONGEST = 100 * 365 * UNITS["d"]
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The retention limits of a store. 0 means no limit; by default everything is stored.

    A session that was not used for ``ttl`` seconds is hidden from every reader at that moment and removed soon after. A
    namespace holds at most ``max_sessions`` sessions: a new session replaces the longest unused one. Readers see the
    newest ``max_history_turns`` turns of a branch and a running turn; older turns stay stored. A turn is a user message
    and everything that follows.
    """

    ttl: float = 0.0
    max_sessions: int = 0
    max_history_turns: int = 0

    def __post_init__(self) -> None:
        for name in ("ttl", "max_sessions", "max_history_turns"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} must be 0 (no limit) or more, not {getattr(self, name)}.")

    def __bool__(self) -> bool:
        return bool(self.ttl or self.max_sessions or self.max_history_turns)

    @classmethod
    def of(cls, settings: Settings) -> RetentionLimits:
        """Return the limits of the preset that the setting ``limits`` names. The settings ``ttl``, ``max_sessions`` and
        ``max_history_turns`` override them. Raises InvalidRequest for an unknown preset or an invalid duration."""
        limits = preset(settings.limits)
        if settings.ttl:
            limits = replace(limits, ttl=seconds(settings.ttl, "ttl"))
        if settings.max_sessions != FROM_PRESET:
            limits = replace(limits, max_sessions=settings.max_sessions)
        if settings.max_history_turns != FROM_PRESET:
            limits = replace(limits, max_history_turns=settings.max_history_turns)
        return limits


PRESETS: Mapping[str, RetentionLimits] = MappingProxyType(
    {
        "keep": RetentionLimits(),
        "mistralrs": RetentionLimits(ttl=30 * 60, max_sessions=128),
        "nexo": RetentionLimits(ttl=24 * 3600, max_sessions=10_000, max_history_turns=50),
    }
)
"""The values of the setting ``limits``. ``keep``, the default, stores everything; the others have the limits of the
systems with these names."""


def preset(name: str) -> RetentionLimits:
    if (name or "keep") not in PRESETS:
        raise InvalidRequest(f"limits must be one of {', '.join(PRESETS)}, not {name!r}.")
    return PRESETS[name or "keep"]


# Parses durations as people write them: ``30m``, ``24h``, ``7d``, ``1h30m``. The functions have no side effects.


def seconds(text: str, setting: str) -> float:
    """Parse a duration. ``0`` and the empty text are 0; other numbers need a unit, since 30 could be seconds or
    minutes. Raises InvalidRequest with the name of ``setting``."""
    duration = text.strip().lower()
    if duration in ("", "0"):
        return 0.0
    parts = _PART.findall(duration)
    if "".join(number + unit for number, unit in parts) != duration:
        raise InvalidRequest(
            f"{setting} must be a time such as 30m, 24h or 7d (units: {', '.join(UNITS)}), not {text[:40]!r}."
        )
    total = math.fsum(float(number) * UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise InvalidRequest(f"{setting} can be at most 100 years, not {text[:40]!r}.")
    return total
