"""Defines the stages of a pull, which is the download of a model, and the values that report its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["wait", "download", "verify", "rewrite", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a pull within one stage: ``done`` of ``total`` bytes. ``total`` is 0 for a stage without a byte
    count. ``note`` is shown to the user: the reason for a wait, or for trying another source."""

    stage: Stage
    done: int = 0
    total: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"stage": self.stage, "done": self.done, "total": self.total, "note": self.note}


def megabytes(size: int) -> str:
    """Return a size in bytes as text such as ``676 MB``, in decimal megabytes as download pages show it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size} bytes"
