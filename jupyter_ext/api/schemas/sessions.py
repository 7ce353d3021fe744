"""Response bodies of the routes of sessions and branches."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from agent_kernel.core.approval import Grant
from agent_kernel.core.events import TurnState
from agent_kernel.core.session import Branch, Snippet
from agent_kernel.core.settings import Effort
from agent_kernel.sessions.export.import_export import ImportPreview
from agent_kernel.sessions.undo import UndoResult


class Brief(TypedDict):
    """The fields of a session that every caller of the namespace may see. Times are seconds since the epoch. ``turns``
    counts the turns of all branches; undone turns do not count. ``head`` is the number (seq) of the newest item."""

    id: str
    title: str
    tags: list[str]
    created: float
    updated: float
    accessed: float
    turns: int
    head: int
    revision: int
    branch: str
    private: bool


class Listed(Brief):
    """A session in a list. ``notebooks`` is present only if a user sent the request, not a kernel."""

    bound: bool
    notebooks: NotRequired[list[str]]


class Sessions(TypedDict):
    sessions: list[Listed]


class Session(Brief):
    """A session. ``imported`` describes the document from which the session was imported: its ``id`` and ``revision``
    there, and the ``sha256`` of the document. It is null if the session was created here. No request changes it; forks
    copy it."""

    metadata: dict[str, Any]
    context: Any
    imported: dict[str, Any] | None


class BoundSession(Session):
    bound: bool


class Shown(Session):
    notebooks: list[str]


class WithHistory(Shown):
    """A session with its history. ``messages``, ``images``, ``videos`` and ``files`` are the current branch in
    mistral.rs's format for sessions, which PUT accepts. As in that format, the content of a message is wrapped:
    ``Left`` contains a text, ``Right`` a list."""

    messages: list[dict[str, Any]]
    images: list[str]
    videos: list[dict[str, Any]]
    files: list[dict[str, Any]]


class Replaced(Shown):
    """The session that was written. ``created`` is true if no session had this id before."""


class Deleted(TypedDict):
    """The answer to a deletion. ``deleted`` is false if there was no such session, which is not an error."""

    id: str
    deleted: bool


class Forked(BoundSession):
    source: str


class Imported(BoundSession):
    preview: ImportPreview


class Previewed(TypedDict):
    preview: ImportPreview


class StoredMessage(TypedDict):
    """``content`` is text, or a list of parts if there are media. Keys without a value are omitted."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_calls: NotRequired[list[dict[str, Any]]]
    reasoning_content: NotRequired[str]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    status: NotRequired[str]
    hidden: NotRequired[bool]
    extra: NotRequired[dict[str, Any]]


class Item(TypedDict):
    seq: int
    turn: str
    time: float
    message: StoredMessage


class StoredTurn(TypedDict):
    id: str
    ordinal: int
    state: TurnState
    reason: str
    cell: str
    epoch: str
    where: str
    model: str
    opened: float
    closed: float | None
    since: int
    usage: dict[str, float]
    record: dict[str, Any]


class Items(TypedDict):
    items: list[Item]
    turns: list[StoredTurn]


class Branches(TypedDict):
    branches: list[Branch]
    revision: int


class BranchDropped(TypedDict):
    name: str
    deleted: Literal[True]


class TakenBack(TypedDict):
    undone: UndoResult | None
    session: Session


class Summary(TypedDict):
    """A summary of older turns. ``last`` is the number (seq) of the newest item that the summary replaces."""

    id: int
    last: int
    text: str
    model: str
    reason: str
    time: float
    usage: dict[str, float]


class Summaries(TypedDict):
    summaries: list[Summary]


class OneSummary(TypedDict):
    summary: Summary | None


class Cost(TypedDict):
    turns: int
    summaries: int
    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int
    seconds: float
    estimated: bool


class ToolUse(TypedDict):
    count: int
    seconds: float
    outcomes: dict[str, int]


class Context(TypedDict):
    """The use of the model's context: ``tokens`` of ``window`` tokens are in use. ``window`` is 0 if unknown."""

    tokens: int
    window: int


class Usage(TypedDict):
    total: Cost
    states: dict[str, int]
    models: dict[str, Cost]
    days: dict[str, Cost]
    branches: dict[str, Cost]
    tools: dict[str, ToolUse]
    context: Context


class Hit(TypedDict):
    session: Brief
    score: float
    notebooks: list[str]
    snippets: list[Snippet]


class Found(TypedDict):
    """The results of a search. ``searched`` is ``all`` if all sessions of the namespace were searched, and ``own`` if
    only those of the caller were."""

    hits: list[Hit]
    searched: Literal["all", "own"]
    seconds: float


class Ruling(TypedDict):
    permission: Literal["auto", "ask", "deny"]
    because: str
    firm: bool


class Policy(TypedDict):
    """The permission policy. ``policy`` has a ruling for each kind of call, and for each tool that is named. ``effort``
    applies to turns that state none. ``instructions`` says whether the server adds instructions to every turn, and
    ``web`` whether a turn with the field ``web`` gets the web tools."""

    policy: dict[str, Ruling]
    approval_timeout_s: float
    effort: Effort
    instructions: bool
    web: bool


class Permissions(Policy):
    session: str
    grants: list[Grant]


class Revoked(TypedDict):
    revoked: int


class Cleared(TypedDict):
    """The answer to clearing outputs: the number of tool ``results`` that were removed, and the number of ``cells``
    that they belonged to."""

    cells: int
    results: int


class EndedTurn(TypedDict):
    turn: str
    cell: str
    state: TurnState
    reason: str
    closed: float | None
    prompt: str


class Lost(TypedDict):
    sandbox: str
    pieces: int
    kernel: str


class Meanwhile(TypedDict):
    session: str
    since: float
    turns: list[EndedTurn]
    more: bool
    running: list[str]
    approvals: list[dict[str, Any]]
    lost: Lost
    problems: list[str]
