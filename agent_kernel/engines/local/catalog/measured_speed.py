"""Stores how fast each model decoded on this machine, in one file of the model cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agent_kernel.core.atomic_file import replace_file
from agent_kernel.core.messages import Usage
from agent_kernel.engines.local.catalog.installed_model import models_dir

SPEEDS_FILE = "speeds.json"
TOKENS_MIN = 32
"""Minimum number of tokens of an answer whose speed is stored; a shorter answer says little about the speed."""
CHANGE_MIN = 0.1
"""Minimum change of a speed that is stored, as a share of the stored speed."""
SLOWER_SHARE = 0.25
"""Share of the difference by which an answer that is slower than the stored speed lowers the stored speed. It is small,
because other programs may have used the processor during the answer."""


def read_speeds(cache_dir: Path) -> Mapping[str, float]:
    """Return the tokens per second of each model by its name; empty if nothing was measured or the file cannot be
    read."""
    try:
        speeds = json.loads((models_dir(cache_dir) / SPEEDS_FILE).read_text(encoding="utf-8"))
        return {str(name): float(speed) for name, speed in speeds.items() if float(speed) > 0}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def record_speed(cache_dir: Path, model: str, usage: Usage) -> None:
    """Store the decoding speed of an answer; the caller passes only answers that were decoded alone. Short answers and
    small changes are not stored. A disk error is ignored, because the speed is only for display. Blocking."""
    speed = usage.tokens_per_s
    if usage.estimated or usage.completion_tokens < TOKENS_MIN or speed <= 0:
        return
    speeds = dict(read_speeds(cache_dir))
    if (known := speeds.get(model, 0.0)) > speed:
        speed = known + SLOWER_SHARE * (speed - known)
    if abs(known - speed) < CHANGE_MIN * speed:
        return
    path = models_dir(cache_dir) / SPEEDS_FILE
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(speeds | {model: round(speed, 2)}, indent=2).encode(), mode=0o666)
