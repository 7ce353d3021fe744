"""Reads the annotations of a turn (data that its events reported in addition to its messages) from its record;
`agent_kernel/turn/turn_annotations.py` writes them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.events import ContextBuilt

ANNOTATIONS = "asides"
"""Key in the record of a turn: {calls: [...], notices: [...], context: {...}}, without empty entries."""
EDITED = "edited"
"""Key in the approval of a call: the text that a person wrote in place of the proposed text."""


class StoredAnnotations:
    """The annotations of a stored turn. They are read in the order in which the turn is displayed again."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        stored = record.get(ANNOTATIONS)
        stored = stored if isinstance(stored, Mapping) else {}
        self._calls: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        self._notices = deque(stored.get("notices") or ())
        context = stored.get("context") or {}
        field_names = {
            field.name for field in dataclasses.fields(ContextBuilt)
        }  # a newer release may have stored more fields
        self.context = {name: value for name, value in context.items() if name in field_names}
        for call in stored.get("calls") or ():
            self._calls[str(call.get("call", ""))].append(call)

    def peek(self, call: str) -> Mapping[str, Any]:
        """Return the annotations of a call that begins, without removing them; ``take`` removes them."""
        return self._calls[call][0] if self._calls[call] else {}

    def take(self, call: str) -> Mapping[str, Any]:
        return self._calls[call].popleft() if self._calls[call] else {}

    def take_edit(self, call: str) -> str | None:
        """Remove the annotations of a call that ended, and return the text that a person wrote in place of the proposed
        text; None if the person changed nothing."""
        approval = self.take(call).get("approval")
        edited = approval.get(EDITED) if isinstance(approval, Mapping) else None
        return edited if isinstance(edited, str) else None

    def notices(self, blocks: int | None = None) -> list[tuple[str, str, str]]:
        """Remove and return the notices, as (level, text, details), that the turn reported while at most ``blocks`` of
        its blocks had begun (None: all that are left). A block is a call or a text (see ``turn_annotations``)."""
        notices: list[tuple[str, str, str]] = []
        while self._notices and (blocks is None or self._notices[0]["at"] <= blocks):
            notice = self._notices.popleft()
            notices.append((str(notice["level"]), str(notice["text"]), str(notice.get("details", ""))))
        return notices
