"""Collects annotations, which are facts that the events of a turn report in addition to its messages: where and how
long calls ran, decisions of people, notices, and how much of the conversation the model saw. They are stored in a
compact form in the turn's record, so that the turn can be displayed again."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from agent_kernel.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallStarted,
    ContextBuilt,
    EventBody,
    Notice,
    ReasoningDelta,
    StateLost,
    TextDelta,
)
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.stored_annotations import ANNOTATIONS, EDITED
from agent_kernel.turn.changed_cells import CHANGE

MAX_DETAILS = 4 << 10
"""Limit for the details of one call, in bytes of JSON; larger ones are not stored."""
MAX_CALLS = 500
MAX_NOTICES = 50
NOTICE_CHARS = 2_000
_ASKED = ("approval", "name", "kind", "target", "source", "label", "again")
_ANSWERED = ("decision", "reason")


class TurnAnnotations:
    """Collects the annotations of one turn from its events.

    Calls are kept in a list, in the order in which they ended, and not by id, because a model may use an id again in
    the next round. ``at`` of a call or a notice is the number of blocks that began before it. A block is a call, or a
    run of text or reasoning.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor.off()
        self._calls: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._notices: list[dict[str, Any]] = []
        self._context: dict[str, Any] = {}
        self._blocks = 0
        self._run: type[EventBody] | None = None

    def note(self, body: EventBody) -> None:
        match body:
            case TextDelta() | ReasoningDelta():
                self._blocks += type(body) is not self._run
                self._run = type(body)
                return
            case CallStarted(call=call, where=where):
                self._open[call] = {"call": call, "at": self._blocks, "where": where}
                self._blocks += 1
            case ApprovalRequired() | ApprovalResolved():
                self._note_approval(body)
            case CallFinished():
                self._note_result(body)
            case Notice(level, text, details):
                self._notice(level, text, details)
            case StateLost(reason):
                self._notice("lost", reason)
            case ContextBuilt():
                self._context = dataclasses.asdict(body)
        self._run = None

    @property
    def record(self) -> dict[str, Any]:
        """The annotations as JSON, under a key of the record that is stored with the turn; empty if there are none."""
        annotations = {"calls": self._calls, "notices": self._notices, "context": self._context}
        nonempty = {name: value for name, value in annotations.items() if value}
        return {ANNOTATIONS: nonempty} if nonempty else {}

    def _note_approval(self, body: ApprovalRequired | ApprovalResolved) -> None:
        known = self._open.get(body.call, {}).setdefault("approval", {})
        names = _ASKED if isinstance(body, ApprovalRequired) else _ANSWERED
        known |= {name: self._redactor.value(getattr(body, name)) for name in names}
        if isinstance(body, ApprovalResolved) and body.edited is not None:
            known[EDITED] = self._redactor.text(body.edited)

    def _note_result(self, body: CallFinished) -> None:
        call = self._open.pop(body.call, {"call": body.call}) | {"seconds": body.seconds}
        if body.files:
            call["files"] = list(body.files)
        details = {name: value for name, value in body.details.items() if name != CHANGE}
        if details and len(json.dumps(details, default=str)) <= MAX_DETAILS:
            call["details"] = self._redactor.value(details)
        if len(self._calls) < MAX_CALLS:
            self._calls.append(call)

    def _notice(self, level: str, text: str, details: str = "") -> None:
        if len(self._notices) < MAX_NOTICES:
            texts = {"text": text, **({"details": details} if details else {})}
            clean = {name: self._redactor.text(value)[:NOTICE_CHARS] for name, value in texts.items()}
            self._notices.append({"at": self._blocks, "level": level, **clean})
