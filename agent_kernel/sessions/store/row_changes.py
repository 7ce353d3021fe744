"""Defines a change of a row of a shared table, and its form in an entry of the log."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

ERASING = frozenset({"sessions", "items", "media", "files", "summaries", "quarantine", "turns", "branches"})
"""Tables that hold content of people. After a deletion in one of them, all rows of the session are written to the log
again in one entry, which replaces the earlier ones."""
_WITH_BYTES = "quarantine"
"""The only shared table with a column of bytes."""


class RowChange(NamedTuple):
    """One change of a row. ``event`` is i (insert), u (update) or d (delete). ``old`` are the key columns before the
    change, and ``new`` are all shared columns after it."""

    table: str
    event: str
    old: Sequence[Any]
    new: Sequence[Any]

    @property
    def erases(self) -> bool:
        return self.table in ERASING and (self.event == "d" or (self.event == "u" and self.table == "items"))


def encode(changes: Sequence[RowChange]) -> bytes:
    # This encoder takes a quarter of the time of the one in ``json``. It writes letters as UTF-8, because escaped
    # letters of most languages take two to three times as many bytes.
    from pydantic_core import to_json

    return to_json(
        [
            change._replace(new=[*map(_bytes_to_json, change.new)]) if change.table == _WITH_BYTES else change
            for change in changes
        ]
    )


def decode(body: bytes) -> list[RowChange]:
    return [RowChange(table, event, _from_json(old), _from_json(new)) for table, event, old, new in json.loads(body)]


def _bytes_to_json(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _from_json(values: Sequence[Any]) -> list[Any]:
    return [base64.b64decode(v["base64"]) if isinstance(v, dict) else v for v in values]
