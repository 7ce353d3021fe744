"""Holds the state of a turn while it runs: the request, the messages so far, and how many of them are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.events import CallFinished, CallOutput, CallStarted, Emit, EventBody, Notice
from agent_kernel.core.messages import Message, ToolCall, Usage, shorten, tool_result
from agent_kernel.core.protocols import RESULT_CHARS, ToolSpec
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sessions.usage_report import CallTally
from agent_kernel.turn.changed_cells import ChangedCells
from agent_kernel.turn.history import PreparedTurn
from agent_kernel.turn.number_check import stored_numbers as kept
from agent_kernel.turn.number_check.check import CheckedNumber
from agent_kernel.turn.program_vote import Vote
from agent_kernel.turn.redacted_events import DELTAS
from agent_kernel.turn.turn_annotations import TurnAnnotations
from agent_kernel.turn.turn_writer import OpenTurn
from agent_kernel.turn.work_time import WorkTime

MAX_PRINTED = 16 * RESULT_CHARS
"""Characters of the beginning of each call's output that are collected."""


class UnfinishedCalls:
    """The output that calls of a turn print while they run. If the turn is stopped, the output is stored as the results
    of these calls."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._printed: dict[str, str] = {}

    def note(self, body: EventBody) -> None:
        match body:
            case CallStarted(call, name):
                self._calls[call] = name
            case CallOutput(call, text) if len(before := self._printed.get(call, "")) < MAX_PRINTED:
                self._printed[call] = before + text[: MAX_PRINTED - len(before)]
            case CallFinished(call):
                self._calls.pop(call, None)
                self._printed.pop(call, None)

    def results(self, reason: str) -> list[Message]:
        """Return a result for each unfinished call that has printed something: the output, and why the call ended."""
        return [
            tool_result(
                ToolCall(call, name, {}), f"{shorten(printed.rstrip(), RESULT_CHARS)}\n[{reason}]", "interrupted"
            )
            for call, name in self._calls.items()
            if (printed := self._printed.get(call, "")).strip()
        ]


@dataclass(slots=True)
class ActiveTurn:
    """A running turn and its output so far. If the turn is stopped, its record is made from this object."""

    request: TurnRequest
    opened: OpenTurn
    announce: Emit
    calls: CallTally = field(default_factory=CallTally)
    changes: ChangedCells = field(default_factory=ChangedCells)
    annotations: TurnAnnotations = field(default_factory=TurnAnnotations)
    share: float = 0.0
    context: int = 0
    began: bool = False
    messages: list[Message] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    rounds: int = 0
    text: str = ""
    saved: int = 0
    media: dict[str, bytes] = field(default_factory=dict)
    place: PreparedTurn | None = None
    tools: tuple[str, ...] = ()
    earlier: Sequence[Message] = ()
    finish: str = ""
    stopped: str = ""
    returned: list[str] = field(default_factory=list)
    numbers: tuple[CheckedNumber, ...] | None = None
    votes: list[Vote] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    """Names of the tools of which a call has started."""
    time: WorkTime = field(default_factory=WorkTime)
    unfinished: UnfinishedCalls = field(default_factory=UnfinishedCalls)

    @property
    def record(self) -> dict[str, Any]:
        """Return the record that is stored with the turn when it is closed."""
        known = {
            "tools": list(self.tools),
            "context": self.context,
            "finish": self.finish,
            **({"stopped": self.stopped} if self.stopped else {}),
            **({"returned": self.returned} if self.returned else {}),
            **({"votes": [vote.record for vote in self.votes]} if self.votes else {}),
            **self.calls.record,
            **self.changes.record,
            **self.annotations.record,
        }
        return known | kept.to_record(self.numbers)

    def owed_tools(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """Return the tools that still have to be called.

        These are the functions that the request declares, if ``tool_choice`` is required and none of them has been
        called yet. Empty if there are none.
        """
        theirs = {spec.name for spec in self.request.functions if spec.source == "external"}
        if self.request.tool_choice != "required" or theirs & self.started:
            return ()
        return tuple(spec for spec in tools if spec.name in theirs)

    def emit(self, body: EventBody) -> None:
        self.unfinished.note(body)
        if isinstance(body, DELTAS):  # most events are deltas, and only the annotations need them
            self.annotations.note(body)
            self.announce(body)
            return
        if isinstance(body, CallStarted):
            self.started.add(body.name)
        self.time.note(body)
        self.calls.note(body)
        self.changes.note(body)
        self.annotations.note(body)
        self.announce(body)

    def note_vote(self, vote: Vote) -> None:
        self.votes.append(vote)
        self.emit(Notice("info", vote.sentence, vote.disagreement))

    async def begin(self, prepared: PreparedTurn) -> None:
        """Store the first messages of the turn and set what the model sees, which may differ from what is stored."""
        self.began = True
        self.messages.extend(prepared.current)
        self.earlier = prepared.history
        if prepared.behind is not None or prepared.earlier:
            self.place = prepared
        await self._store(prepared.to_store)

    async def save(self, *messages: Message) -> None:
        """Add messages to the turn; the model sees them, and they are stored."""
        await self._store(messages)
        self.messages.extend(messages)
        answer = next((message for message in reversed(messages) if message.role == "assistant"), None)
        if answer is not None and (answer.text or not any(call.id in self.returned for call in answer.calls)):
            self.text = answer.text

    async def _store(self, messages: Sequence[Message]) -> None:
        """Append messages to the store. The first call determines after which item the turn is stored, and creates a
        branch for the turn if it needs one. A branch is therefore never empty."""
        if not messages:
            return
        place, self.place = self.place, None
        items = await self.opened.append(messages, *((place.behind, place.earlier) if place is not None else ()))
        self.saved += len(items)
