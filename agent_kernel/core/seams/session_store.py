"""Defines the interface of a session store, in small parts; implementations do not inherit from them. The parts that
hold files and permission decisions are ``file_store.py`` and ``grant_store.py``.

Every operation is one transaction: it takes effect completely or not at all, even if the caller is cancelled.
CancelledError is raised only after the operation has ended; if it failed, its exception is the cause of the
CancelledError. Every change of a session increases its ``revision``. A ``limit`` of None means all and 0 means none; a
negative one raises InvalidRequest. The errors are those of ``errors.py``; any operation may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.seams.file_store import SessionFiles
from agent_kernel.core.seams.grant_store import Grants
from agent_kernel.core.session import (
    Branch,
    Item,
    NotebookBinding,
    OpeningMatch,
    Owner,
    SearchHit,
    Session,
    SessionKey,
    SessionQuery,
    SessionUpdate,
    StoreFault,
    Summary,
    Turn,
)
from agent_kernel.core.session_tree import SessionSnapshot


class SessionOperations(Protocol):
    async def create(self, key: SessionKey, title: str = "") -> Session:
        """Return the session; create it if it does not exist."""

    async def info(self, key: SessionKey) -> Session | None: ...

    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        """Return the sessions of a namespace, most recently updated first, without those whose id begins with
        ``UNLISTED``."""

    async def rename(self, key: SessionKey, title: str) -> None: ...

    async def describe(self, key: SessionKey, change: SessionUpdate) -> Session:
        """Change the description of a session and return the session; a field that is None stays as it is. Raises
        SessionNotFound, and InvalidRequest for more than MAX_TAGS tags or MAX_DESCRIPTION bytes of JSON."""

    async def touch(self, key: SessionKey) -> None:
        """Set ``accessed`` to now and change nothing else, not even the revision. Does nothing for an unknown
        session."""

    async def clear(self, key: SessionKey) -> None:
        """Remove every item, turn, branch and summary; the session and its bindings stay. Raises SessionBusy while a
        turn is open."""

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool:
        """Delete the session with its items, turns and bindings, and the media that nothing else uses. Returns whether
        it existed. Raises SessionBusy, and Conflict if ``revision`` is given and the session has changed since then."""


class TurnOperations(Protocol):
    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        """Open a turn on the current branch of the session and take its lease. Raises SessionNotFound, and SessionBusy
        while another turn is open."""

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> list[Item]:
        """Append all messages in order, or none, and return the new items. The bytes of their media are stored in the
        same transaction. Raises SequenceConflict if the last number (seq) that the session has assigned is not
        ``expect_seq``; LeaseLost if the turn is closed or belongs to another owner; InvalidRequest for a result without
        its call, for a second result, and for any other message while a call has no result."""

    async def append_at(
        self,
        turn: Turn,
        owner: Owner,
        messages: Sequence[Message],
        expect_seq: int,
        *,
        behind: int | None = None,
        earlier: Sequence[Sequence[Message]] = (),
    ) -> list[Item]:
        """Append the first items of an open turn after the item with the seq ``behind``, which may be on any branch (0:
        at the beginning of the session, None: at the end of the current branch), and return them.

        The branch that ends at this item becomes the current one; if there is none, a branch is created. This happens
        in the same transaction, so that no reader sees an empty branch. Each element of ``earlier`` is an exchange
        that took place elsewhere before this turn, and becomes a committed turn. Raises the errors of ``append``
        (SequenceConflict, LeaseLost, InvalidRequest); Conflict if the turn already has items; InvalidRequest if item
        ``behind`` does not exist or is between calls and their results, or if a call in ``earlier`` has no result.
        """

    async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
        """Renew the lease of an open turn. Returns False if the lease is lost."""

    async def close_turn(
        self,
        turn: Turn,
        owner: Owner,
        state: TurnState,
        reason: str = "",
        usage: Usage | None = None,
        *,
        record: Mapping[str, Any] | None = None,
    ) -> bool:
        """Close the turn in one transaction, and return True. Every unanswered call gets a result with the status
        interrupted and the text ``reason``; ``record`` is merged into the turn's record. Returns False and writes
        nothing if the turn is unknown, closed, or belongs to another owner, so that closing a turn twice is
        harmless."""

    async def recover(self) -> list[Turn]:
        """Close the open turns whose owner has stopped, with the state interrupted, and return them. An owner counts as
        stopped if its lease was not renewed for LEASE_S seconds or if it is provably dead. A lease that is renewed in
        the meantime keeps its turn open."""

    async def add_turn(
        self, turn: Turn, messages: Sequence[Message], *, usage: Usage | None = None, expect_seq: int | None = None
    ) -> list[Item]:
        """Add a complete turn that was not run here to the current branch, with the state committed, and return its
        items. The session is created if it does not exist. Raises SequenceConflict if the last assigned seq is not
        ``expect_seq``, SessionBusy, Conflict for an id that the session already has, and InvalidRequest for a call
        without its result."""

    async def extend_turn(self, turn: Turn, messages: Sequence[Message]) -> list[Item]:
        """Append items to the newest turn of the current branch, which must be closed, and return them. Raises Conflict
        if ``turn`` is not the newest one."""

    async def add_messages(
        self, key: SessionKey, messages: Sequence[Message], *, record: Mapping[str, Any] | None = None
    ) -> list[Item]:
        """Append the messages of another program to the end of the current branch, and return the items. The session is
        created if it does not exist. Every user message that is not hidden begins a committed turn with this
        ``record``. Messages before the first user message continue the newest turn, or begin a turn if there is none.
        Raises SessionBusy, and InvalidRequest for a call without its result."""

    async def turn(self, namespace: str, id: str) -> Turn | None:
        """Return the turn with this id, or None. If several sessions have a turn with this id, the turn that was opened
        last is returned."""

    async def pop(self, key: SessionKey) -> list[Item]:
        """Remove the newest item of the current branch and everything that cannot exist without it: a result is removed
        together with the message that made the call and all results of that message. Returns the removed items; empty
        if there are none. A turn whose last item is removed is removed too, with its usage. Other branches keep the
        items that they share. Raises SessionBusy, SessionNotFound."""

    async def rewind(self, key: SessionKey, tail: Sequence[Item]) -> bool:
        """Remove the items ``tail`` and return True if they are exactly the newest items of the current branch,
        compared by seq, turn and message. Otherwise change nothing and return False. Raises SessionBusy, and
        InvalidRequest if a call would lose its results."""


class HistoryQueries(Protocol):
    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> list[Item]:
        """Return the newest ``limit`` items of a branch (None = the current one), in order; fewer if the first ones
        would be results without their call. ``failed=False`` leaves out the items of failed turns. Media have no data.
        Empty for an unknown session or branch."""

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> list[Turn]:
        """Return the newest ``limit`` turns of a branch in order; with ``before``, only turns before the turn with this
        id. Raises TurnNotFound if ``before`` is not on the branch."""

    async def everything(self, key: SessionKey) -> tuple[list[Turn], list[Item]]:
        """Return the turns and items of all branches, in the order in which they were stored."""

    async def of_cell(self, key: SessionKey, cell: str, limit: int | None = None) -> list[Turn]:
        """Return the newest ``limit`` turns of a cell on any branch, oldest first."""

    async def of_turn(self, turn: Turn) -> list[Item]:
        """Return all items of one turn in order, whichever branch the turn is on."""

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        """Return the bytes with the hash ``digest`` if an item of this session refers to them, otherwise None."""


class BranchOperations(Protocol):
    """The branches of a session. The turns of a session form a tree, and a branch is the path from the beginning to one
    end. Every session has at least the branch with which it was created, ``main``."""

    async def branches(self, key: SessionKey) -> list[Branch]:
        """Return the branches in the order in which they were created."""

    async def branch(self, key: SessionKey, *, before: str | None = None, name: str = "") -> Branch:
        """Create a branch that contains everything on the current branch before the turn ``before`` (None: everything),
        make it the current one, and return it. An empty name becomes ``branch-N``. Raises Conflict for a name that a
        branch of this session has or had, TurnNotFound if ``before`` is not on the current branch, and SessionBusy."""

    async def switch(self, key: SessionKey, name: str) -> Branch:
        """Make the branch the current one and return it. Raises BranchNotFound, SessionBusy."""

    async def drop_branch(self, key: SessionKey, name: str) -> None:
        """Remove the branch, and everything that no other branch contains. Raises BranchNotFound, Conflict for the
        current branch, and SessionBusy."""

    async def siblings(self, key: SessionKey, turn: str) -> list[tuple[str, str]]:
        """Return the versions of one question: (turn, first branch that contains it) for all turns that follow the same
        item as ``turn``, in order. Turns without items are left out, except ``turn`` itself. Empty for an unknown
        turn."""

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        """Create the session ``target`` from the current branch up to its ``turns``-th committed turn (None = all,
        0 = none), with the media. Turns that failed or were stopped before that are copied; an open turn is not. The
        fork keeps the mark ``imported``, but not the hash of the imported document, because the fork may contain less
        than the document. Raises SessionNotFound, and Conflict if ``target`` exists."""


class SummaryOperations(Protocol):
    """Summaries of the older part of a conversation. In the model's context a summary replaces everything on its branch
    up to the item ``last``; the items themselves stay stored."""

    async def summaries(self, key: SessionKey, *, branch: str | None = None) -> list[Summary]:
        """Return the summaries that apply to a branch (None = the current one), in order."""

    async def claim_summary(self, key: SessionKey, owner: Owner) -> bool:
        """Claim the right to write the next summary. Returns False if another claim is held. A claim expires after
        SUMMARY_CLAIM_S."""

    async def add_summary(self, summary: Summary, owner: Owner) -> Summary:
        """Store a summary, release the claim, and return the summary with its id. Raises Conflict if the owner does not
        hold the claim, or if ``last`` is not on the current branch or not after the newest summary there."""

    async def release_summary(self, key: SessionKey, owner: Owner) -> None:
        """Release the owner's claim on the next summary of the session without storing a summary."""

    async def undo_summary(self, key: SessionKey) -> Summary | None:
        """Remove the newest summary that applies to the current branch, and return it; None if there is none."""


class SearchIndexing(Protocol):
    async def fold(self, limit: int = 1000) -> int:
        """Add up to ``limit`` new items to the search index and return how many are left. Search also finds items that
        are not in the index yet."""


class SearchOperations(SearchIndexing, Protocol):
    async def search(self, namespace: str, query: SessionQuery) -> list[SearchHit]:
        """Return the sessions in which any of the words occurs in a message of a user or a model, best first. Sessions
        that match equally well are in the order of their last change, newest first. Matching follows
        ``sessions/search/text_matching.py``. Raises InvalidRequest."""


class OpeningIndex(Protocol):
    """The interface that finds the session that begins with given messages. Beginnings are stored as hashes
    (``sessions/conversation_match.py``), so that the cost of a search does not depend on how much is stored."""

    async def remember(self, key: SessionKey, scope: str, chain: Mapping[int, str]) -> None:
        """Store hashes of the beginnings of a conversation. ``chain`` maps the seq of an item on the current branch to
        the hash of the visible conversation up to that item. ``scope`` is a hash of user, model and instructions; a
        beginning is found only within its scope."""

    async def forget(self, key: SessionKey) -> None:
        """Remove the stored beginnings of the session, so that ``match`` no longer finds it, because a client now uses
        it by its id."""

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        """Find the session that continues the longest of several beginnings; None if there is none. ``chain`` contains
        the hashes of the beginnings, from short to long. Of several sessions with this beginning, the one that changed
        last is returned. Sessions that are bound to a notebook are not searched."""


class BindingOperations(Protocol):
    """The bindings, which say which session a notebook, or a kernel without a notebook, uses. ``root`` is the contents
    root, so that two servers that each have an Untitled.ipynb do not share a session; ``path`` is the path of the
    notebook below it, or ``kernel:ID``."""

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None: ...

    async def unbind(self, namespace: str, root: str, path: str) -> bool: ...

    async def bound(self, namespace: str, root: str, path: str) -> str | None: ...

    async def move(self, root: str, old: str, new: str) -> int:
        """Update the bindings of every namespace after a file or a directory was renamed, and return how many
        changed."""

    async def paths(self, root: str, session: SessionKey) -> list[str]: ...


class SnapshotOperations(Protocol):
    """Reads and writes whole sessions, for export, import, and copies of a notebook."""

    async def whole(self, key: SessionKey) -> SessionSnapshot | None:
        """Return the whole session with all branches, read at one revision, or None if it does not exist. Media have no
        data."""

    async def restore(self, whole: SessionSnapshot, blobs: Mapping[str, bytes], *, replace: bool = False) -> Session:
        """Store a whole session, with its seqs, ids, times and revision unchanged, except that ``accessed`` becomes
        now. Raises Conflict if the session exists, and InvalidRequest for media without their bytes, and for an open
        turn, which no process would own. With ``replace`` an existing session is replaced in the same transaction. Its
        notebooks stay bound to it, and its revision becomes higher than before. Raises SessionBusy if the existing
        session has an open turn."""

    async def clear_outputs(self, key: SessionKey, turns: Collection[str], text: str) -> int:
        """Replace the tool results of these turns with ``text``, remove their media, and record the time in the turns'
        records (``outputs_cleared``). Returns how many results were changed. Raises SessionBusy, SessionNotFound."""


class StoreMaintenance(Protocol):
    async def verify(self, namespace: str | None = None) -> list[StoreFault]:
        """Return the inconsistencies of the store, without changing anything: a call without a result in a closed turn,
        a result without a call, items without a turn, bodies that cannot be decoded, media without bytes, a wrong
        head."""

    async def repair(self, namespace: str | None = None) -> list[StoreFault]:
        """Repair the faults that ``verify`` finds, in one transaction, and return them. Rows that cannot be repaired
        are moved to the quarantine, never deleted."""

    async def stats(self, namespace: str | None = None) -> Mapping[str, Any]:
        """Return counts (``namespaces``, ``sessions``, ``turns``, ``items``, ``media``, ``files``, ``bindings``, and
        ``set_aside`` of the quarantine), sizes in bytes (``bytes`` of messages, ``media_bytes``, ``file_bytes`` of the
        database), and times in seconds since the epoch (``first_made``, ``last_used``; None without sessions)."""

    async def bindings(self, namespace: str | None = None) -> list[NotebookBinding]:
        """Return all bindings of a namespace (None: of all namespaces), ordered by namespace, root and path."""

    async def forget_set_aside(self, namespace: str | None = None) -> None:
        """Delete the rows that ``repair`` has moved to the quarantine."""

    async def vacuum(self) -> int:
        """Free unused disk space, including that of deleted text. Returns the number of bytes freed."""


class RetentionQueries(Protocol):
    """The queries that a store must support so that sessions can be removed by age or by number
    (``sessions/retention/retention.py``)."""

    async def idle(self, until: float) -> list[Session]:
        """Return the sessions of all namespaces that have not been used since ``until`` (seconds since the epoch) and
        have no open turn, longest unused first."""

    async def excess(self, cap: int, namespace: str | None = None) -> list[Session]:
        """Return the sessions that exceed the number ``cap`` in the namespace (None: in each namespace): the longest
        unused ones, longest unused first, without sessions that have an open turn."""


class SessionStore(
    SessionOperations,
    TurnOperations,
    HistoryQueries,
    BranchOperations,
    SummaryOperations,
    SearchOperations,
    OpeningIndex,
    BindingOperations,
    SnapshotOperations,
    Protocol,
):
    async def aclose(self) -> None:
        """Release files and connections. Pending writes are finished first."""


class FileStore(SessionStore, SessionFiles, Protocol):
    """A session store that also stores files."""


class ExpiringStore(SessionStore, RetentionQueries, Protocol):
    """A session store from which sessions can be removed by age or by number."""


class PersistentStore(SessionStore, StoreMaintenance, Grants, RetentionQueries, Protocol):
    """A persistent store with maintenance, permission grants and retention. A custom store may lack the
    methods for these."""
