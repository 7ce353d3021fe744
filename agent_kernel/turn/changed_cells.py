"""Stores the notebook changes of a turn's calls with the turn, so that the user can undo them later. For each change,
the sources of cells before and after it are stored, and the outputs of deleted cells. Secrets are redacted, as in
everything that is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import CallFinished, EventBody
from agent_kernel.sessions.redaction.redaction import Redactor

CHANGE = "change"
"""Key in the details of a call; its value is the change that the call made to the notebook."""
CHANGES = "changes"
"""Key under which the record of a turn holds the changes of its calls, each under its call id."""
MAX_BYTES = 512 << 10
"""Maximum size of the changes that are stored for one turn, in bytes of JSON."""
TEXTS = ("before", "after", "kept")
SECRET = "its text contained a key or a password, which is not stored"
NO_ROOM = "the changes of the turn are too large to be stored"


class ChangedCells:
    """Collects the notebook changes of one turn from the turn's events."""

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
        """Return the changes as JSON, under a key of the record that is stored with the turn; empty if nothing was
        changed."""
        return {CHANGES: self._changes} if self._changes else {}


def stored_change(record: Mapping[str, Any], call: str) -> dict[str, Any]:
    """Return, as details of a call, the change that the call ``call`` made to a cell; empty if ``record`` has none.
    ``record`` is the record of the call's turn."""
    changes = record.get(CHANGES)
    change = changes.get(call) if isinstance(changes, Mapping) else None
    return {CHANGE: dict(change)} if isinstance(change, Mapping) else {}


def clean_change(redactor: Redactor, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``details`` unchanged if none of its texts contains a secret; otherwise return them without the texts,
    because restoring a redacted text would change the cell."""
    change = details.get(CHANGE)
    if not redactor.is_on or not isinstance(change, Mapping) or redactor.value(change) == change:
        return dict(details)
    return {**details, CHANGE: without_texts(change, SECRET)}


def without_texts(change: Mapping[str, Any], lost: str) -> dict[str, Any]:
    """Return the change without its texts. The reason ``lost``, which says why the change cannot be undone, is stored
    in their place."""
    return {name: value for name, value in change.items() if name not in TEXTS} | {"lost": lost}
