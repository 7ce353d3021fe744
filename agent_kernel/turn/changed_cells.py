"""What calls of a turn changed in the notebook, kept with the turn so that it can be undone later. Sources as they were
before and after, no outputs beyond those of a deleted cell; without keys and passwords, as everything that is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import CallFinished, EventBody
from agent_kernel.sessions.redaction.redaction import Redactor

CHANGE = "change"
"""In the details of a call."""
CHANGES = "changes"
"""In the record of a turn, by the id of the call."""
MAX_BYTES = 512 << 10
"""Of one turn, as JSON."""
TEXTS = ("before", "after", "kept")
SECRET = "its text held a key or a password, which is not kept"
NO_ROOM = "the turn changed more than is kept of one turn"


class ChangedCells:
    """The changes of one turn, from its events."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor.off()
        self._changes: dict[str, Any] = {}
        self._room = MAX_BYTES

    def note(self, body: EventBody) -> None:
        if not isinstance(body, CallFinished) or CHANGE not in body.details:
            return
        change = clean_change(self._redactor, body.details)[CHANGE]
        size = len(json.dumps(change, default=str))
        if size > self._room:
            change = without_texts(change, NO_ROOM)
        self._room -= min(size, self._room)
        self._changes[body.call] = change

    @property
    def record(self) -> dict[str, Any]:
        """For the record of the turn; empty without changes."""
        return {CHANGES: self._changes} if self._changes else {}


def stored_change(record: Mapping[str, Any], call: str) -> dict[str, Any]:
    """The details of a stored call, as far as they were kept."""
    changes = record.get(CHANGES)
    change = changes.get(call) if isinstance(changes, Mapping) else None
    return {CHANGE: dict(change)} if isinstance(change, Mapping) else {}


def clean_change(redactor: Redactor, details: Mapping[str, Any]) -> dict[str, Any]:
    """A text with a secret is left out as a whole: put back with a gap it would be another text."""
    change = details.get(CHANGE)
    if not redactor.is_on or not isinstance(change, Mapping) or redactor.value(change) == change:
        return dict(details)
    return {**details, CHANGE: without_texts(change, SECRET)}


def without_texts(change: Mapping[str, Any], lost: str) -> dict[str, Any]:
    """``lost`` says why it can not be undone."""
    return {name: value for name, value in change.items() if name not in TEXTS} | {"lost": lost}
