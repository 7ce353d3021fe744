"""Reads the example of each operation from ``examples.json``. The examples were recorded from a server with a scripted
model."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("examples.json")


@functools.cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the examples by ``operationId``: the ``request`` that was sent, the ``status`` and the ``reply``, which is
    None if it is empty."""
    by_operation: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return by_operation
