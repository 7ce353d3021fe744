"""Defines the values that a session store holds: sessions, turns, items, and the owner of an open turn."""

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
"""Seconds after which a lease that is not renewed is lost. By then its owner has missed six heartbeats."""
HEARTBEAT_S = 10.0
MAX_ID = 512
MAIN = "main"
"""Name of the branch that every session starts with."""
MAX_TAGS = 32
MAX_DESCRIPTION = 64 * 1024
"""Maximum size of ``metadata`` and of ``context``, each in bytes of JSON."""
SNIPPET_CHARS = 160
"""Maximum number of characters of a search snippet."""
MAX_SNIPPETS = 5
"""Maximum number of snippets of one session."""
SUMMARY_CLAIM_S = 600.0
"""How long a claim on a session's summary lasts (seconds) unless its owner releases it.

The slowest summary measured with a small model on a CPU took a tenth of this.
"""


UNLISTED = "unlisted:"
"""Prefix of session ids that lists omit.

Such a session is created for a request that names no session. It is stored so that a later request can continue it by
the id of the response. Search finds its messages.
"""


def check_id(value: str, name: str = "session id") -> str:
    """Return ``value`` if it has 1 to 512 characters of valid Unicode and no control characters. Raises InvalidRequest.

    This is the only place where ids are checked.
    """
    # Nearly every id is printable and thus has no control characters. Examining each character takes 50 times as long.
    if not 1 <= len(value) <= MAX_ID or (
        not value.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in value)
    ):
        raise InvalidRequest(
            f"A {name} must have 1 to {MAX_ID} characters of valid Unicode, none of them a control character."
        )
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
    """A conversation.

    ``revision`` grows with every change of any kind. ``accessed`` is the time when a client last read or continued the
    session. ``metadata`` and ``context`` hold data of the caller, and ``branch`` is the name of the current branch.
    ``imported`` describes the document from which the session was imported, and is None for a session that began here;
    only an import sets it, and a fork copies it.

    ``head`` is the last seq that was assigned (0 = none) and ``turns`` the number of turns ever opened, on all
    branches. Neither of them ever decreases, so that no number is assigned twice. ``last_seq`` is the seq of the newest
    item that still exists, and ``turn_count`` the number of turns that still exist, on all branches; both are 0 in a
    Session that was not read from a store.
    """

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
    """Changes to the description of a session; a field that is None stays as it is.

    To delete ``context``, set it to an empty object. If ``instead_of`` is set, ``title`` is stored only if the session
    still has the title ``instead_of``, so that a title that a person wrote in the meantime stays.
    """

    title: str | None = None
    tags: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None
    context: Any = None
    instead_of: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a turn. ``instance`` is unique for each server start, so two runs of a server are never
    confused.

    The other fields come from ``process_identity``; a field is empty where the system does not provide it.
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

    def is_provably_dead(self, last_seen: float) -> bool:
        """Return True only if no process can be writing as this owner. ``last_seen`` is the time of the owner's last
        heartbeat, in seconds since the epoch.

        A pid can be looked up only if the owner has the same boot id and the same pid namespace as this process. If the
        boot id differs, the owner is dead if it ran in an earlier boot of this machine: the machine ids agree, and its
        last heartbeat was before this boot. The second condition is needed because clones of an image share a machine
        id while both are running.
        """
        this_process = Owner.here()
        if self.boot and this_process.boot and self.boot != this_process.boot:
            booted = process_identity.boot_time()
            return (
                bool(self.machine)
                and self.machine == this_process.machine
                and booted is not None
                and last_seen < booted
            )
        same_kernel = self.boot == this_process.boot and bool(self.boot or self.machine)
        same_pids = self.machine == this_process.machine and self.pid_namespace == this_process.pid_namespace
        return same_kernel and same_pids and not process_identity.is_alive(self.pid, self.started)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and everything that follows it.

    ``cell`` is the id of the notebook cell; for a cell without an id, it is a hash of the cell's source and the ordinal
    of the turn. ``epoch`` identifies one run of a kernel, from start to restart: variables of another epoch no longer
    exist. ``since`` is the last seq of the session when the turn was opened; all items of the turn come after it.
    """

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
    """One stored message. ``seq`` grows within a session, over all branches, and is never assigned twice."""

    seq: int
    turn: str
    message: Message
    time: float


@dataclass(frozen=True, slots=True)
class Branch:
    """One path through the tree of turns.

    ``parent`` is the branch from which it began (empty for the first branch), and the items up to ``since`` are shared
    with it. ``head`` is the seq of the branch's newest item, and ``turns`` the number of its turns.
    """

    name: str
    parent: str = ""
    since: int = 0
    head: int = 0
    turns: int = 0
    created: float = field(default_factory=time.time)
    current: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """A text that replaces the items of a branch up to item ``last`` in the model's context.

    ``model`` wrote it from the previous summary and the items after that summary; ``usage`` are the tokens and seconds
    of that model call. ``reason`` says why it was written: a person requested it, or the model's context was nearly
    full.
    """

    key: SessionKey
    last: int
    text: str
    model: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    id: int = 0
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Search words and filters.

    A session matches if any of the words occurs in it, also as a part of a longer word; case is ignored. ``limit`` is
    the maximum number of sessions. ``role`` is user, assistant, or empty for both. ``root`` and ``path`` select a
    notebook; ``since`` and ``until`` bound the time of a message (seconds since the epoch). ``sessions`` restricts the
    search to these ids. ``used`` excludes sessions last used (``accessed``) before that time.
    """

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
    """At most SNIPPET_CHARS characters of a message around the first matching word."""

    seq: int
    turn: str
    cell: str
    role: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A session that matches a query.

    ``score`` is a sum over the matching messages: each adds 1 and a fraction that grows with the rarity of its words.
    ``snippets`` are taken from the MAX_SNIPPETS messages with the highest scores, newer ones first among equals, and
    are in the order of the conversation.
    """

    session: Session
    score: float
    snippets: tuple[Snippet, ...]


@dataclass(frozen=True, slots=True)
class OpeningMatch:
    """A session whose beginning matches that of a request. The first ``length`` visible messages match; ``seq`` is the
    item of the last one."""

    key: SessionKey
    length: int
    seq: int


@dataclass(frozen=True, slots=True)
class StoreFault:
    """An inconsistency in a store. ``kind`` is a code for programs, and ``detail`` a description for people. ``mended``
    says how it was repaired; empty if it was not."""

    namespace: str
    session: str
    kind: str
    detail: str
    mended: str = ""


@dataclass(frozen=True, slots=True)
class NotebookBinding:
    """Connects a notebook (``path`` below the contents root ``root``), or a kernel without a notebook, with its
    session."""

    namespace: str
    root: str
    path: str
    session: str


def new_id(prefix: str) -> str:
    """Return a readable unique id: ``prefix-YYYYMMDD-HHMMSS-xxxxxx``."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def creation_time(id: str) -> int | None:
    """Return the time at which ``new_id`` created this id, in seconds since the epoch, or None if ``new_id`` did not
    create it.

    The result is stable as long as the time zone of this machine does not change.
    """
    try:
        return int(time.mktime(time.strptime("-".join(id.split("-")[-3:-1]), "%Y%m%d-%H%M%S")))
    except (ValueError, OverflowError):
        return None
