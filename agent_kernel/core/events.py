"""What a turn announces, one dataclass per event; everything a person sees is rendered from these.

On the wire an event is ``{seq, turn, session, round, time, type, data}``. ``seq`` counts from 1 within a turn. Standard
library only: the magic reads events inside a person's kernel.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from agent_kernel.core.invisible_characters import find_invisible, mark_invisible

MAX_LISTED_NUMBERS = 12
"""Numbers of an answer that one line names."""
TurnState: TypeAlias = Literal["open", "committed", "cancelled", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """``host`` is where the conversation goes: another machine when it is not ``local``; empty: nowhere."""

    type: ClassVar[str] = "turn.started"
    model: str
    local: bool
    where: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class TurnVersion:
    """A cell was run again: this turn is version ``number`` of ``count``, on ``branch``, in the place of the turn
    ``replaces``, which stays on the branch ``kept_on`` with the ``later`` turns that followed it. ``changed``: it asks
    something else (an edit, not a retry)."""

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
    """Waiting for another turn (``position`` >= 1) of this session, or for the engine."""

    type: ClassVar[str] = "queued"
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """``fraction`` is 0..1, or None while unknown."""

    type: ClassVar[str] = "model.loading"
    model: str
    stage: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ContextBuilt:
    """What the model sees this round: how many messages, how many older ones did not fit, how many results of tools
    lost their middle, and whether a summary stands for what was said first."""

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
    """``where`` is where the call runs: live, sandbox, server or client."""

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
    """A person must decide. ``code`` is exactly what will run, for a person to read: each character that would not be
    seen stands in ``code`` and ``label`` by its number (``unseen.mark_unseen``), whoever makes this value, and
    ``unseen`` lists these numbers. ``arguments`` are the call's own, unchanged. ``target`` is where it runs. ``shown``
    is the hash of name, target and arguments: a decision names it, so that it counts for nothing else. ``remember``:
    what may be decided beyond this call (session, never; of a path also folder). ``until``: when it is denied by itself
    (seconds since the epoch); None: it waits. ``again`` is why an earlier yes does not count here."""

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "unseen", self.unseen or find_invisible(f"{self.code}{self.label}"))
        object.__setattr__(self, "code", mark_invisible(self.code))
        object.__setattr__(self, "label", " ".join(mark_invisible(self.label).split()))


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    type: ClassVar[str] = "approval.resolved"
    approval: str
    call: str
    decision: str
    reason: str


@dataclass(frozen=True, slots=True)
class CallOffered:
    """A client of this notebook may claim and run the call (``call.claimed`` follows, once)."""

    type: ClassVar[str] = "call.offered"
    call: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallClaimed:
    """Sent again when the client that runs the call reports another ``where`` (empty: as ``call.started`` says) or
    another ``state``: running, or waiting for the person's answer at the client."""

    type: ClassVar[str] = "call.claimed"
    call: str
    client: str
    where: str = ""
    state: str = "running"


@dataclass(frozen=True, slots=True)
class CallFinished:
    """``text`` is what the model reads. ``media`` are ``{mime, hash, size, data}``, data in base64 unless it was shown
    already by the client that ran the call. ``details`` are facts for programs, by tool; ``files`` are ids."""

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
    """A call of a function that the caller declared and runs itself: the turn ends, and the caller's next turn brings
    the result under the same id."""

    type: ClassVar[str] = "call.returned"
    call: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerLogprobs:
    """The tokens of one model call's text in order, ``{text, logprob}`` each, with the likeliest tokens in its place as
    ``top`` where those were asked for; only where they were asked for, the
    engine has them, and nothing had to be taken out of the text."""

    type: ClassVar[str] = "answer.logprobs"
    tokens: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class FileProduced:
    """A file is kept with the session. ``file`` is ``File.to_json`` with its body (``text`` or ``data_base64``) where
    that is small."""

    type: ClassVar[str] = "file.produced"
    call: str
    file: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StateLost:
    """Variables that the conversation speaks of are gone."""

    type: ClassVar[str] = "state.lost"
    reason: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that a person should read: a limit met, a save that failed, a layer that is missing."""

    type: ClassVar[str] = "notice"
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class AnswerChecked:
    """The numbers of the answer, the last text of the turn, in order: ``{start, end, text, status}`` and, of those that
    come from a call, ``{call, line, shown}`` (``numbers/checked.py``). Just before the end of a turn in a conversation
    where tools ran."""

    type: ClassVar[str] = "answer.checked"
    numbers: tuple[Mapping[str, Any], ...]

    @property
    def told(self) -> str:
        """One line to the person; empty when there is nothing to tell."""
        said = [number for number in self.numbers if number["status"] != "given"]
        texts = [str(number["text"]) for number in said if number["status"] == "open"]
        if not texts:
            return ""
        more = f" and {len(texts) - MAX_LISTED_NUMBERS} more" if len(texts) > MAX_LISTED_NUMBERS else ""
        were = "was" if len(texts) == 1 else "were"
        numbers = "number" if len(said) == 1 else "numbers"
        return (
            f"{len(texts)} of {len(said)} {numbers} {were} not computed: {', '.join(texts[:MAX_LISTED_NUMBERS])}{more}"
        )


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The last event of every turn. ``error`` is ``{code, message, hint, details}`` when the state is failed.
    ``finish`` is why the last model call of a committed turn ended: stop, length, or calls (the caller runs them).
    ``stopped`` is the stop sequence that its text ended before, if one did and the engine knows it."""

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
Emit: TypeAlias = Callable[[EventBody], None]


@dataclass(frozen=True, slots=True)
class Event:
    """A body in its envelope. ``time`` is seconds since the epoch."""

    seq: int
    turn: str
    session: str
    round: int
    time: float
    body: EventBody = field()

    def to_json(self) -> dict[str, Any]:
        data = {item.name: getattr(self.body, item.name) for item in dataclasses.fields(self.body)}
        return {
            "seq": self.seq,
            "turn": self.turn,
            "session": self.session,
            "round": self.round,
            "time": round(self.time, 4),
            "type": self.body.type,
            "data": data,
        }

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Event:
        """Raises KeyError for a type this version does not know and TypeError for a body that lacks a field; unknown
        fields of a known type are ignored, so that an older client follows a newer server."""
        kind = EVENT_TYPES[wire["type"]]
        known = {item.name for item in dataclasses.fields(kind)}
        body = kind(**{key: value for key, value in wire["data"].items() if key in known})
        return cls(wire["seq"], wire["turn"], wire["session"], wire["round"], wire["time"], body)


class EventNumbering:
    """Puts the bodies of one turn into numbered envelopes; a ContextBuilt begins the next round (the first is 1)."""

    def __init__(self, turn: str, session: str, clock: Callable[[], float] = time.time) -> None:
        self.turn = turn
        self.session = session
        self.seq = 0
        self.round = 0
        self._clock = clock

    def __call__(self, body: EventBody) -> Event:
        self.seq += 1
        if isinstance(body, ContextBuilt):
            self.round += 1
        return Event(self.seq, self.turn, self.session, self.round, self._clock(), body)
