"""Bodies of requests as JSON: what every reader would read alike, or a refusal."""

from __future__ import annotations

from agent_kernel.sessions.export.formats.json_reader import loads

MAX_DEPTH = 100
"""Levels of lists and objects."""
MAX_VALUES = 500_000
"""Lists, objects, and what is in them."""


def check(body: bytes, most: int) -> None:
    """Raises InvalidRequest for what is no JSON in UTF-8, is too deep or holds too much, names a key twice in one
    object, or a number that JSON does not have (NaN, Infinity, 1e999)."""
    loads(body, most, MAX_DEPTH, MAX_VALUES, what="body")


def is_json(content_type: str) -> bool:
    """Also a type of which JSON is the suffix. Who says nothing is believed."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("", "application/json", "text/json") or (kind.startswith("application/") and kind.endswith("+json"))
