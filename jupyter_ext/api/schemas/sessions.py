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
    """What every caller of the namespace may see of a session. Times are seconds since the epoch. ``turns`` counts the
    turns of all branches, ``head`` is the seq of the newest item; undone turns do not count."""

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
    """``notebooks`` is present only for a person."""

    bound: bool
    notebooks: NotRequired[list[str]]


class Sessions(TypedDict):
    sessions: list[Listed]


class Session(Brief):
    """``imported`` describes the document that the session was imported from: its ``id`` and ``revision`` there, and
    the ``sha256`` of the document; null if the session was created here. No request changes it; forks copy it."""

    metadata: dict[str, Any]
    context: Any
    imported: dict[str, Any] | None


class BoundSession(Session):
    bound: bool


class Shown(Session):
    notebooks: list[str]


class WithHistory(Shown):
    """``messages``, ``images``, ``videos`` and ``files`` are the current branch in mistral.rs's format for sessions,
    which PUT accepts. The values of messages are wrapped as in mistral.rs: ``Left`` for a text, ``Right`` for a
    list."""

    messages: list[dict[str, Any]]
    images: list[str]
    videos: list[dict[str, Any]]
    files: list[dict[str, Any]]


class Replaced(Shown):
    """``created``: no session had this id, so none was replaced."""


class Deleted(TypedDict):
    """``deleted`` is false if there was no such session; that is not an error."""

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
    """``last`` is the seq of the newest item that the summary replaces."""

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
    """How full the model's context is: ``tokens`` in use of ``window`` tokens; ``window`` is 0 if unknown."""

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
    """``searched``: all sessions of the namespace, or only the caller's own."""

    hits: list[Hit]
    searched: Literal["all", "own"]
    seconds: float


class Ruling(TypedDict):
    permission: Literal["auto", "ask", "deny"]
    because: str
    firm: bool


class Policy(TypedDict):
    """``policy`` has a ruling for each kind of call and each named tool. ``effort`` applies to turns that state none.
    ``instructions`` says whether the server adds instructions to every turn."""

    policy: dict[str, Ruling]
    approval_timeout_s: float
    effort: Effort
    instructions: bool


class Permissions(Policy):
    session: str
    grants: list[Grant]


class Revoked(TypedDict):
    revoked: int


class Cleared(TypedDict):
    """The number of tool ``results`` that were removed, and the number of their ``cells``."""

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
