"""Parses durations as people write them: ``30m``, ``24h``, ``7d``, ``1h30m``. The functions have no side effects."""

from __future__ import annotations

import math
import re

from agent_kernel.core.errors import InvalidRequest

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds per unit. A day always has 24 hours."""
LONGEST = 100 * 365 * UNITS["d"]
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")


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
