"""Response bodies of the routes of turns, calls and approvals."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from agent_kernel.core.approval import ApprovalOutcome, Decision, Remember
from agent_kernel.core.events import TurnState, TurnVersion
from agent_kernel.tools.code.rebuild_variables import RebuildStep


class Event(TypedDict):
    """An event of a turn. ``seq`` is its number in the turn, from 1; ``round`` is the model request that the event
    belongs to."""

    seq: int
    turn: str
    session: str
    round: int
    time: float
    type: str
    data: dict[str, Any]


class InputFile(TypedDict):
    id: str
    name: str
    mime: str
    size: int


class Medium(TypedDict):
    """An image or video. ``data`` is base64, and present only for media that are not stored yet."""

    mime: str
    hash: str
    size: int
    data: NotRequired[str]


class ShownTurn(TypedDict):
    turn: str
    session: str
    state: str
    running: bool
    prompt: str
    cell: str
    context: list[str]
    inputs: list[InputFile]
    media: list[Medium]
    model: str
    where: str
    usage: dict[str, float]
    record: dict[str, Any]
    created: float
    closed: float | None
    events: list[Event]


class Turns(TypedDict):
    """A range of a session's turns. ``older``: there are earlier turns. ``waiting`` are requested turns that have not
    started, in the order in which they will run; they are not stored yet."""

    turns: list[ShownTurn]
    older: bool
    waiting: list[ShownTurn]


class AskedAgain(TypedDict):
    """The reason why a cell was asked again: its stored answer ``turn`` is no longer valid. ``reason`` is a text, or
    "variables" if the kernel's variables are not those that the code of that turn left. Only the kernel knows which
    ones differ."""

    reason: str
    turn: str


class Started(TypedDict):
    """A turn that was started. ``asked_again`` is present if ``rerun`` is "show" and the cell ran before."""

    turn: str
    session: str
    title: str
    created: bool
    notebook: str | None
    private: bool
    stored: Literal[False]
    asked_again: NotRequired[AskedAgain | None]


class Stored(TypedDict):
    """A stored answer that is still valid, returned in place of a new turn; no model was called."""

    turn: str
    session: str
    title: str
    created: Literal[False]
    notebook: str | None
    private: bool
    stored: Literal[True]
    answered: float | None
    version: TurnVersion


class State(TypedDict):
    turn: str
    session: str
    state: str
    reason: str
    usage: dict[str, float]
    events: int
    running: bool


class Ended(TypedDict):
    state: TurnState


class Outputs(TypedDict):
    """The cell outputs of a turn, in the format of notebook files."""

    turn: str
    session: str
    outputs: list[dict[str, Any]]


class OneVersion(TypedDict):
    version: int
    turn: str
    branch: str
    state: TurnState
    model: str
    opened: float
    closed: float | None
    current: bool


class Versions(TypedDict):
    session: str
    versions: list[OneVersion]


class Claimed(TypedDict):
    """This client runs the call. The claim lasts ``lease_s`` seconds; the client renews it every ``renew_s``."""

    token: str
    lease_s: float
    renew_s: float
    name: str
    arguments: dict[str, Any]


class Declined(TypedDict):
    declined: Literal[True]


class Nothing(TypedDict):
    """An empty object."""


class WaitingApproval(TypedDict):
    approval: str
    call: str
    name: str
    kind: str
    target: str
    code: str
    arguments: dict[str, Any]
    source: str
    label: str
    shown: str
    remember: list[str]
    until: float | None
    again: str
    unseen: list[str]
    editable: str
    session: str
    turn: str
    asked: float


class Approvals(TypedDict):
    approvals: list[WaitingApproval]


class Question(TypedDict):
    id: str
    session: str
    turn: str
    call: str
    kind: str
    tool: str
    shown: str
    outcome: ApprovalOutcome
    remember: Remember
    message: str
    asked: float
    answered: float | None
    edited: str


class Resolved(TypedDict):
    status: Literal["resolved"]
    decision: Decision
    remember: Remember
    message: str


class Variable(TypedDict):
    name: str
    type: str
    shape: list[int]


class Variables(TypedDict):
    variables: list[Variable]
    lost: str


class KernelVariable(TypedDict):
    name: str
    summary: str


class KernelVariables(TypedDict):
    variables: list[KernelVariable]
    problem: str


class RebuiltSession(TypedDict):
    """The result of rebuilding variables. ``status`` is "shown" for a dry run, in which no code ran."""

    session: str
    pieces: list[RebuildStep]
    ran: int
    status: str
    error: str


class OfferedTool(TypedDict):
    """A tool of a turn. ``called`` is false if the model of the conversation never calls it by itself."""

    called: bool
    name: str
    label: str
    description: str
    kind: str
    where: str
    source: str
    permission: Literal["auto", "ask", "deny"]
    because: str
    firm: bool


class Tools(TypedDict):
    tools: list[OfferedTool]
    notes: list[str]
