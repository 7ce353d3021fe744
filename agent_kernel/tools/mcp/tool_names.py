"""Converts tool names to the form that models can write: ``[A-Za-z0-9_-]``, at most 64 characters, unique."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

LONGEST = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MARK = 7
"""Number of characters of the ending that makes a name unique: ``_`` and a hash."""


def exposed_name(prefix: str, name: str, used_names: Collection[str] = ()) -> str:
    """Return ``prefix_name`` in a form that models can write.

    If the name is too long, contains other characters, or is in ``used_names``, it ends with a hash of the original
    name. The name is therefore the same in every turn.
    """
    safe = _UNSAFE.sub("_", f"{prefix}_{name}" if prefix else name)
    if len(safe) <= LONGEST and safe not in used_names and safe.strip("_-"):
        return safe
    for salt in range(1000):
        mark = hashlib.sha256(f"{prefix}\0{name}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[: _MARK - 1]
        shortened = f"{safe[: LONGEST - _MARK]}_{mark}"
        if shortened not in used_names:
            return shortened
    raise AssertionError("a thousand hashes were taken")
