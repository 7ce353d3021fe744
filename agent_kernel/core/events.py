"""Defines the events of a turn, one dataclass for each type. Clients render everything that a person sees from these
events.

On the wire an event is ``{seq, turn, session, round, time, type, data}``. ``seq`` counts from 1 within a turn. This
module uses the standard library only, because the magic reads events inside the user's kernel.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from agent_kernel.core.invisible_characters import find_invisible, mark_invisible

MAX_LISTED_NUMBERS = 12
"""Maximum number of numbers that the summary line of AnswerChecked lists."""
TurnState: TypeAlias = Literal["open", "committed", "cancelled", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn has begun.

    ``host`` is the machine to which the conversation is sent if the engine is not ``local``; empty if there is none.
    """

    type: ClassVar[str] = "turn.started"
    model: str
    local: bool
    where: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class TurnVersion:
    """A cell was run again, so this turn is a new version of an earlier turn.

    It is version ``number`` of ``count`` and stands on ``branch`` in place of the turn ``replaces``. The replaced turn
    stays on the branch ``kept_on``, with the ``later`` turns that followed it. ``changed`` is true if the prompt was
    edited, false for a plain retry.
    """

    type: ClassVar[str] = "turn.version"
    branch: str
    number: int
    count: int
    replaces: str
    kept_on: str
    later: int = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """The turn waits for earlier turns of its session, or one of its model calls waits for the engine.

    ``position`` 1 means that no other turn, or no other model call, is served before this one.
    """

    type: ClassVar[str] = "queued"
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """The engine loads its model; ``fraction`` is 0 to 1, or None while it is unknown."""

    type: ClassVar[str] = "model.loading"
    model: str
    stage: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ContextBuilt:
    """A new round begins. The event describes the messages that the model sees in this round.

    ``messages`` is the number of messages, ``dropped`` how many older ones did not fit, and ``shortened`` from how many
    tool results the middle was cut out. ``summary`` is true if a summary replaces the beginning of the conversation.
    """

    type: ClassVar[str] = "context"
    messages: int
    dropped: int
    shortened: int = 0
    summary: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    type: ClassVar[str] = "text.delta"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    type: ClassVar[str] = "reasoning.delta"
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call starts. ``where``: live (in the user's kernel), draft (in a fork of it), sandbox, server, client."""

    type: ClassVar[str] = "call.started"
    call: str
    name: str
    arguments: Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class CallOutput:
    type: ClassVar[str] = "call.output"
    call: str
    text: str
    stream: str = "stdout"


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """A person must decide about a call before it runs.

    ``code`` is exactly what will run, in a form that a person can read. The constructor replaces every invisible
    character in ``code`` and ``label`` by its code point (``mark_invisible``) and lists these code points in
    ``unseen``. ``arguments`` are the arguments of the call, unchanged. ``target`` is where the call runs.

    ``shown`` is the hash of name, target and arguments. The client returns it with the decision, so that the decision
    cannot apply to another call. ``remember`` lists the decisions that may be remembered after this call (session,
    never; for a path also folder). ``until`` is when the call is denied automatically (seconds since the epoch); None
    means that the question waits without a limit. ``again`` explains why an earlier approval does not apply here.
    ``editable`` names the argument that the person may change before the call runs; empty if there is none.
    """

    type: ClassVar[str] = "approval.required"
    approval: str
    call: str
    name: str
    kind: str
    target: str
    code: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    source: str = "built_in"
    label: str = ""
    shown: str = ""
    remember: tuple[str, ...] = ()
    until: float | None = None
    again: str = ""
    unseen: tuple[str, ...] = ()
    editable: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unseen", self.unseen or find_invisible(f"{self.code}{self.label}"))
        object.__setattr__(self, "code", mark_invisible(self.code))
        object.__setattr__(self, "label", " ".join(mark_invisible(self.label).split()))


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """A question is answered or withdrawn. ``edited`` is the text with which the call runs in place of the proposed
    one; None if the person changed nothing."""

    type: ClassVar[str] = "approval.resolved"
    approval: str
    call: str
    decision: str
    reason: str
    edited: str | None = None


@dataclass(frozen=True, slots=True)
class CallOffered:
    """A call is offered to the clients of this notebook. One of them may claim the call and then run it; the event
    ``call.claimed`` (CallClaimed) reports the claim."""

    type: ClassVar[str] = "call.offered"
    call: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallClaimed:
    """A client has claimed the call and runs it.

    The event is repeated when that client reports another ``where`` (empty: as in ``call.started``) or another
    ``state``. ``state`` says that the call is running, or waits for an answer of the person at the client.
    """

    type: ClassVar[str] = "call.claimed"
    call: str
    client: str
    where: str = ""
    state: str = "running"


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A tool call has ended.

    ``text`` is what the model reads. ``media`` are ``{mime, hash, size, data}`` with data in base64, without ``data``
    if the client that ran the call has already displayed them. ``details`` are data for programs and depend on the
    tool; ``files`` are file ids.
    """

    type: ClassVar[str] = "call.finished"
    call: str
    name: str
    status: str
    text: str
    seconds: float
    media: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallReturned:
    """A call of a function that the caller declared and runs itself.

    The turn ends with this call. The caller's next turn contains the result with the same call id.
    """

    type: ClassVar[str] = "call.returned"
    call: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerLogprobs:
    """The tokens of the text of one model call in order, each ``{text, logprob}``.

    A token also has ``top``, the likeliest tokens at its position, if they were requested. The event is sent only if
    log probabilities were requested, the engine provides them, and no secret was removed from the text.
    """

    type: ClassVar[str] = "answer.logprobs"
    tokens: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class FileProduced:
    """A file that a tool produced was stored with the session.

    ``file`` is ``File.to_json``, with the body (``text`` or ``data_base64``) if the file is small.
    """

    type: ClassVar[str] = "file.produced"
    call: str
    file: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StateLost:
    """Variables to which the conversation refers no longer exist; ``reason`` says why."""

    type: ClassVar[str] = "state.lost"
    reason: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of one line to the user: a limit was reached, a save failed, or a sandbox layer is missing.

    ``details`` is plain text, which may have several lines. Clients show it collapsed below the message.
    """

    type: ClassVar[str] = "notice"
    level: str
    text: str
    details: str = ""

    @property
    def line(self) -> str:
        """The text and the details on one line, for clients that cannot collapse the details."""
        return " ".join([self.text, *self.details.split()])


@dataclass(frozen=True, slots=True)
class AnswerChecked:
    """States where the numbers of the answer come from.

    ``numbers`` lists the numbers in the last text of the turn, in order, each as ``{start, end, text, status}``.
    Numbers that come from a call also have ``{call, line, shown}`` (see ``turn/number_check/check.py``). The event is
    sent just before the end of a turn, if tools have run in the conversation.
    """

    type: ClassVar[str] = "answer.checked"
    numbers: tuple[Mapping[str, Any], ...]

    @property
    def summary_line(self) -> str:
        """Return a one-line summary for the user; empty if there is nothing to report."""
        facts = [number for number in self.numbers if number["status"] != "given"]
        texts = [str(number["text"]) for number in facts if number["status"] == "open"]
        if not texts:
            return ""
        more = f" and {len(texts) - MAX_LISTED_NUMBERS} more" if len(texts) > MAX_LISTED_NUMBERS else ""
        were = "was" if len(texts) == 1 else "were"
        numbers = "number" if len(facts) == 1 else "numbers"
        listed = ", ".join(texts[:MAX_LISTED_NUMBERS])
        return f"{len(texts)} of {len(facts)} {numbers} {were} not computed: {listed}{more}"


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The last event of every turn.

    ``error`` is ``{code, message, hint, details}`` if the state is failed. ``finish`` is why the last model call of a
    committed turn ended: stop, length, or calls (the caller runs them). ``stopped`` is the stop sequence that ended the
    text, if one did and the engine reports it.
    """

    type: ClassVar[str] = "turn.finished"
    state: TurnState
    reason: str
    rounds: int
    usage: Mapping[str, float]
    error: Mapping[str, Any] | None = None
    finish: str = ""
    stopped: str = ""


EventBody: TypeAlias = (
    TurnStarted
    | TurnVersion
    | Queued
    | ModelLoading
    | ContextBuilt
    | TextDelta
    | ReasoningDelta
    | CallStarted
    | CallOutput
    | ApprovalRequired
    | ApprovalResolved
    | CallOffered
    | CallClaimed
    | CallFinished
    | CallReturned
    | AnswerLogprobs
    | FileProduced
    | StateLost
    | Notice
    | AnswerChecked
    | TurnFinished
)
EVENT_TYPES: dict[str, type[EventBody]] = {kind.type: kind for kind in EventBody.__args__}
_FIELDS = {kind.type: tuple(item.name for item in dataclasses.fields(kind)) for kind in EventBody.__args__}
Emit: TypeAlias = Callable[[EventBody], None]


@dataclass(frozen=True, slots=True)
class Event:
    """An event: a ``body`` in an envelope. ``round`` counts from 1; 0 means before the first round. ``time`` is in
    seconds since the epoch."""

    seq: int
    turn: str
    session: str
    round: int
    time: float
    body: EventBody

    def to_json(self) -> dict[str, Any]:
        """Return the event as it is sent to clients; ``from_json`` reads it."""
        data = {name: getattr(self.body, name) for name in _FIELDS[self.body.type]}
        place = {"seq": self.seq, "turn": self.turn, "session": self.session, "round": self.round}
        return {**place, "time": round(self.time, 4), "type": self.body.type, "data": data}

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Event:
        """Read an event from its wire form.

        Unknown fields of a known type are ignored, so that an older client can follow a newer server. Raises KeyError
        for a type that this version does not know and TypeError for a body that lacks a field.
        """
        kind, data = EVENT_TYPES[wire["type"]], wire["data"]
        body = kind(**{name: data[name] for name in _FIELDS[kind.type] if name in data})
        return cls(wire["seq"], wire["turn"], wire["session"], wire["round"], wire["time"], body)


class EventNumbering:
    """Wraps the event bodies of a turn in numbered envelopes. Each ContextBuilt starts a new round, counted from 1."""

    def __init__(self, turn: str, session: str, clock: Callable[[], float] = time.time) -> None:
        self.turn = turn
        self.session = session
        self.seq = self.round = 0
        self._clock = clock

    def __call__(self, body: EventBody) -> Event:
        self.seq += 1
        if isinstance(body, ContextBuilt):
            self.round += 1
        return Event(self.seq, self.turn, self.session, self.round, self._clock(), body)
