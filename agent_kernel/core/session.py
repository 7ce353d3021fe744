"""What a store keeps: sessions, their turns, the items of a turn, and who may write to an open turn."""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core import process_identity
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message

LEASE_S = 60.0
"""A lease this old (seconds) is lost: the owner missed six heartbeats."""
HEARTBEAT_S = 10.0
MAX_ID = 512
MAIN = "main"
"""The branch that a session is made with."""
MAX_TAGS = 32
MAX_DESCRIPTION = 64 * 1024
"""Bytes of JSON, for metadata and context each."""
SNIPPET_CHARS = 160
"""Characters."""
MAX_SNIPPETS = 5
"""Of one session."""
SUMMARY_CLAIM_S = 600.0
"""Nobody else summarises a session for this long (seconds), unless the claim is given back; the longest summary that a
small model on a CPU was seen to write took a tenth of it."""


UNLISTED = "unlisted:"
"""Before the id of a session that lists leave out: it was made for a call that named none, and is kept because that
call can be continued by another id. Search finds what was said in it."""


def check_id(value: str, what: str = "session id") -> str:
    """1..512 characters without control characters, or InvalidRequest; the only place where ids are checked."""
    if not 1 <= len(value) <= MAX_ID or any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InvalidRequest(f"A {what} has 1 to {MAX_ID} characters and no control characters.")
    return value


@dataclass(frozen=True, slots=True)
class SessionKey:
    namespace: str
    id: str

    def __post_init__(self) -> None:
        check_id(self.namespace, "namespace")
        check_id(self.id)


@dataclass(frozen=True, slots=True)
class Session:
    """``head`` is the seq that was given last (0 = none); ``revision`` grows with every change of any kind; ``turns``
    counts all that were opened, on all branches. ``accessed`` is when somebody last read or continued it. ``metadata``
    and ``context`` are the caller's own; ``branch`` is the current one. ``imported`` describes the document that the
    session was imported from, None for one that began here: only an import sets it, and a fork copies it.

    ``head`` and ``turns`` never shrink, so that no number is given twice. ``last_seq`` and ``turn_count`` are of the
    items and turns that there are now, on all branches, without those that were taken back. Both are 0 in a Session
    that no store has read."""

    key: SessionKey
    title: str = ""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    head: int = 0
    revision: int = 0
    turns: int = 0
    branch: str = MAIN
    accessed: float = field(default_factory=time.time, compare=False)
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    imported: Mapping[str, Any] | None = None
    last_seq: int = field(default=0, compare=False)
    turn_count: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """What to change of a session; None stays as it is. To forget ``context``, give an empty object. ``title`` only in
    the place of ``instead_of``, if that is given: what a person wrote meanwhile stays."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None
    context: Any = None
    instead_of: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a turn; ``instance`` is unique per server start, so two lives are never mistaken.

    The other fields are facts of ``sessions.process``; an empty one was not to be had on that system.
    """

    instance: str
    pid: int
    boot: str = ""
    machine: str = ""
    pid_namespace: str = ""
    started: str = ""

    @classmethod
    def here(cls) -> Owner:
        pid = os.getpid()
        return cls(
            instance=secrets.token_hex(8),
            pid=pid,
            boot=process_identity.boot_id(),
            machine=process_identity.machine_id(),
            pid_namespace=process_identity.pid_namespace(),
            started=process_identity.start_time(pid),
        )

    def provably_dead(self, last_seen: float) -> bool:
        """True only when nobody can be writing as this owner. ``last_seen`` is its last heartbeat (epoch seconds).

        One boot id is one running kernel: there, and only within one pid namespace, a pid can be looked up. Another
        boot id is an earlier life of this machine if the machine ids agree *and* the owner fell silent before this
        boot; the second condition is for images and clones, which share a machine id while both are running.
        """
        here = Owner.here()
        if self.boot and here.boot and self.boot != here.boot:
            booted = process_identity.boot_time()
            return bool(self.machine) and self.machine == here.machine and booted is not None and last_seen < booted
        same_kernel = self.boot == here.boot and bool(self.boot or self.machine)
        same_pids = self.machine == here.machine and self.pid_namespace == here.pid_namespace
        return same_kernel and same_pids and not process_identity.is_alive(self.pid, self.started)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and all that follows. ``cell`` is the notebook cell's id (fallback: source hash + ordinal),
    ``epoch`` names one life of one kernel: variables of another epoch are gone. ``since`` is the head when it was
    opened: its own items come after that."""

    id: str
    key: SessionKey
    ordinal: int = 0
    state: TurnState = "open"
    reason: str = ""
    cell: str = ""
    epoch: str = ""
    where: str = ""
    model: str = ""
    opened: float = field(default_factory=time.time)
    closed: float | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """One stored message; ``seq`` grows within its session, over all branches, and is never given twice."""

    seq: int
    turn: str
    message: Message
    time: float


@dataclass(frozen=True, slots=True)
class Branch:
    """``since``: items up to this seq are shared with ``parent`` (empty: the first branch). ``head`` is the seq of its
    newest item, ``turns`` how many it shows."""

    name: str
    parent: str = ""
    since: int = 0
    head: int = 0
    turns: int = 0
    created: float = field(default_factory=time.time)
    current: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """Stands for what a branch says up to item ``last``. ``model`` wrote it from the one before and what followed;
    ``usage`` is what that cost. ``reason`` is why: asked for, or the share of the model's tokens that was in use."""

    key: SessionKey
    last: int
    text: str
    model: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    id: int = 0
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Words (any of them, as part of a word too, case ignored) and where to look. ``limit`` sessions at most; ``role``
    is user, assistant or empty for both; ``root`` and ``path`` name a notebook; ``since`` and ``until`` are when it was
    said, in seconds since the epoch. ``sessions``: only in those with these ids. ``used``: not in sessions that were
    last used (``accessed``) before."""

    text: str
    limit: int = 5
    role: str = ""
    root: str = ""
    path: str = ""
    since: float | None = None
    until: float | None = None
    sessions: frozenset[str] | None = None
    used: float | None = None


@dataclass(frozen=True, slots=True)
class Snippet:
    """At most SNIPPET characters of a message around the first word that was found."""

    seq: int
    turn: str
    cell: str
    role: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class SearchHit:
    """``score``: every message in which a word occurs counts 1 and less than 1 more for how rare its words are.
    ``snippets``: of the SNIPPETS messages that count most, the newest of equal ones, in order."""

    session: Session
    score: float
    snippets: tuple[Snippet, ...]


@dataclass(frozen=True, slots=True)
class OpeningMatch:
    """A session of which ``length`` visible messages are the beginning asked for; ``seq`` is the last of them."""

    key: SessionKey
    length: int
    seq: int


@dataclass(frozen=True, slots=True)
class StoreFault:
    """One thing that should not be in a store. ``kind`` is a word for programs; ``mended`` says what was done."""

    namespace: str
    session: str
    kind: str
    detail: str
    mended: str = ""


@dataclass(frozen=True, slots=True)
class NotebookBinding:
    """A notebook (``path`` below the contents root ``root``), or a kernel without one, and its session."""

    namespace: str
    root: str
    path: str
    session: str


def new_id(prefix: str) -> str:
    """A readable unique id: ``prefix-YYYYMMDD-HHMMSS-xxxxxx``."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def creation_time(id: str) -> int | None:
    """When ``new_id`` made it, in seconds since 1970; None: it did not. The same wherever and whenever it is asked, as
    long as the time zone of this machine stays."""
    try:
        return int(time.mktime(time.strptime("-".join(id.split("-")[-3:-1]), "%Y%m%d-%H%M%S")))
    except (ValueError, OverflowError):
        return None
