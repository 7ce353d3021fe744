"""What is kept, and for how long. Nothing here removes anything: ``retention.py`` does, ``limited.py`` hides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import FROM_PRESET, Settings
from agent_kernel.sessions.retention.durations import seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """0 is no limit, and the default keeps everything.

    A session that nobody used for ``ttl`` seconds is gone for every reader at that moment, and removed soon after. A
    namespace holds ``max_sessions``: a new one takes the place of the one that was used longest ago. A reader sees the
    newest ``max_history_turns`` of a branch beside the one that runs; the others stay stored. A turn is a user message
    and all that follows.
    """

    ttl: float = 0.0
    max_sessions: int = 0
    max_history_turns: int = 0

    def __post_init__(self) -> None:
        for name in ("ttl", "max_sessions", "max_history_turns"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} is 0 (no limit) or more, not {getattr(self, name)}.")

    def __bool__(self) -> bool:
        return bool(self.ttl or self.max_sessions or self.max_history_turns)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those of the preset ``limits``, but for what is set by itself. Raises InvalidRequest."""
        found = preset(settings.limits)
        if settings.ttl:
            found = replace(found, ttl=seconds(settings.ttl, "ttl"))
        if settings.max_sessions != FROM_PRESET:
            found = replace(found, max_sessions=settings.max_sessions)
        if settings.max_history_turns != FROM_PRESET:
            found = replace(found, max_history_turns=settings.max_history_turns)
        return found


PRESETS: Mapping[str, Limits] = MappingProxyType(
    {
        "keep": Limits(),
        "mistralrs": Limits(ttl=30 * 60, max_sessions=128),
        "nexo": Limits(ttl=24 * 3600, max_sessions=10_000, max_history_turns=50),
    }
)
"""``keep`` is the default; the others are what the systems of these names do."""


def preset(name: str) -> Limits:
    if (name or "keep") not in PRESETS:
        raise InvalidRequest(f"limits is one of {', '.join(PRESETS)}, not {name!r}.")
    return PRESETS[name or "keep"]
