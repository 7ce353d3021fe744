"""The progress of a pull."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["wait", "download", "verify", "rewrite", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` bytes of one stage; ``total`` is 0 if nothing is counted. ``note`` tells people what is
    waited for, or why another source is tried."""

    stage: Stage
    done: int = 0
    total: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"stage": self.stage, "done": self.done, "total": self.total, "note": self.note}


def megabytes(size: int) -> str:
    """``676 MB``, decimal as download pages show it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size} bytes"
