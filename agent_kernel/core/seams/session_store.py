"""The seam of a session store, in small parts; implementations do not inherit from these. Those that keep files and
decisions are ``session_files.py`` and ``grants.py``.

Every operation is one transaction: all of it or nothing, also when the caller is cancelled, who then learns the outcome
as the cause of the CancelledError. Every change of a session raises its ``revision``. ``limit``: None = all, 0 = none,
negative = InvalidRequest. Errors are those of ``errors.py``; any operation may raise StoreError.
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
        """The session, made if it was not there."""

    async def info(self, key: SessionKey) -> Session | None: ...

    async def list(self, namespace: str, limit: int | None = 50) -> list[Session]:
        """Most recently updated first, without those whose id begins with ``UNLISTED``."""

    async def rename(self, key: SessionKey, title: str) -> None: ...

    async def describe(self, key: SessionKey, change: SessionUpdate) -> Session:
        """Changes what people and programs say about a session; a field that is None stays. Raises SessionNotFound,
        InvalidRequest for more than MAX_TAGS tags or MAX_DESCRIPTION bytes of JSON."""

    async def touch(self, key: SessionKey) -> None:
        """Sets ``accessed`` to now and nothing else; the revision stays. An unknown session is not an error."""

    async def clear(self, key: SessionKey) -> None:
        """Removes every item, turn, branch and summary; the session and its bindings stay. Raises SessionBusy while a
        turn is open."""

    async def delete(self, key: SessionKey, revision: int | None = None) -> bool:
        """True if it existed. Items, turns, bindings and media used nowhere else go with it. With ``revision`` only a
        session that did not change since: Conflict else. Raises SessionBusy."""


class TurnOperations(Protocol):
    async def open_turn(self, turn: Turn, owner: Owner) -> Turn:
        """Takes the session's lease, on its current branch. Raises SessionBusy while another turn is open,
        SessionNotFound."""

    async def append(self, turn: Turn, owner: Owner, messages: Sequence[Message], expect_seq: int) -> list[Item]:
        """All or nothing, in order. Raises SequenceConflict if the head is not ``expect_seq``, LeaseLost if the turn is
        closed or another's, InvalidRequest for a result without its call, a second result, or anything else while a
        call is unanswered. Media data go to the blobs in the same transaction."""

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
        """The first items of an open turn, behind item ``behind`` of any branch (0: at the beginning, None: at the end
        of the current one). That branch, or a new one if none ends there, becomes the current one together with the
        items, so that nobody sees it empty. ``earlier`` was said before, elsewhere: each becomes a committed turn.
        Returns the items of this turn. Raises what ``append`` raises, Conflict for a turn that has items,
        InvalidRequest for an item that is not there or stands between calls and their results, and for a call of
        ``earlier`` without its result."""

    async def heartbeat(self, turn: Turn, owner: Owner) -> bool:
        """False when the lease is lost."""

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
        """Answers every unanswered call (status interrupted, text = reason) and closes, in one transaction; ``record``
        is added to the turn's. False, and nothing written, when the turn is unknown, closed or another's: closing twice
        is harmless."""

    async def recover(self) -> list[Turn]:
        """Closes as interrupted, by compare-and-set, the open turns whose lease is LEASE_S old or whose owner is
        provably dead; returns those it closed."""

    async def add_turn(
        self, turn: Turn, messages: Sequence[Message], *, usage: Usage | None = None, expect_seq: int | None = None
    ) -> list[Item]:
        """A whole turn that happened elsewhere, committed in one transaction on the current branch; a session that is
        not there is made. Raises SequenceConflict if the head is not ``expect_seq``, SessionBusy, Conflict for an id
        that the session has, InvalidRequest for a call without its result."""

    async def extend_turn(self, turn: Turn, messages: Sequence[Message]) -> list[Item]:
        """More items of the newest turn of the current branch, which is closed. Raises Conflict if it is another."""

    async def add_messages(
        self, key: SessionKey, messages: Sequence[Message], *, record: Mapping[str, Any] | None = None
    ) -> list[Item]:
        """What another program said, in one transaction, at the end of the current branch: every user message that is
        not hidden begins a committed turn (with this ``record``), what stands before the first one continues the
        newest turn, or begins one where there is none. A session that is not there is made. Raises SessionBusy,
        InvalidRequest for a call without its result."""

    async def turn(self, namespace: str, id: str) -> Turn | None:
        """By its id alone; of two sessions with a turn of that id the one that was opened last."""

    async def pop(self, key: SessionKey) -> list[Item]:
        """Removes the newest item of the current branch, and what can not stand without it: a result goes with its
        call and all results of that. Empty when there is none. A turn without items is gone, and so is its usage. Other
        branches keep what they share. Raises SessionBusy, SessionNotFound."""

    async def rewind(self, key: SessionKey, tail: Sequence[Item]) -> bool:
        """Removes ``tail`` if it is exactly the newest items of the current branch (seq, turn and message); else
        nothing, and False. Raises SessionBusy, InvalidRequest if a call would stay without its results."""


class HistoryQueries(Protocol):
    async def latest(
        self, key: SessionKey, limit: int | None = None, *, failed: bool = True, branch: str | None = None
    ) -> list[Item]:
        """The newest ``limit`` items of a branch (None = the current one), in order. A limit never starts inside a
        call/result pair: it returns fewer. ``failed=False`` leaves out items of failed turns. Media come without
        data. An unknown session or branch has no items."""

    async def turns(
        self, key: SessionKey, limit: int | None = None, *, branch: str | None = None, before: str = ""
    ) -> list[Turn]:
        """The newest ``limit`` turns of a branch, in order; of those before the turn ``before``, if one is named.
        Raises TurnNotFound for one that is not on that branch."""

    async def everything(self, key: SessionKey) -> tuple[list[Turn], list[Item]]:
        """Of all branches, in the order in which they were stored."""

    async def of_cell(self, key: SessionKey, cell: str, limit: int | None = None) -> list[Turn]:
        """The newest turns of a cell on any branch, in order."""

    async def of_turn(self, turn: Turn) -> list[Item]:
        """All items of one turn, on whichever branch it is, in order."""

    async def blob(self, key: SessionKey, digest: str) -> bytes | None:
        """Bytes of a medium that an item of this session names."""


class BranchOperations(Protocol):
    """The turns of a session are a tree, a branch is the way from its beginning to one end. Every session has at least
    the branch it was made with, ``main``."""

    async def branches(self, key: SessionKey) -> list[Branch]:
        """In the order they were made."""

    async def branch(self, key: SessionKey, *, before: str | None = None, name: str = "") -> Branch:
        """A new branch, now the current one, with everything of the current one before the turn ``before`` (None: with
        everything). Without a name it is called ``branch-N``. Raises Conflict for a name that a branch of this session
        has or had, TurnNotFound for a turn that is not on the current branch, SessionBusy."""

    async def switch(self, key: SessionKey, name: str) -> Branch:
        """Makes it the current one. Raises BranchNotFound, SessionBusy."""

    async def drop_branch(self, key: SessionKey, name: str) -> None:
        """Removes it and what no other branch shares. Raises BranchNotFound, Conflict for the current one,
        SessionBusy."""

    async def siblings(self, key: SessionKey, turn: str) -> list[tuple[str, str]]:
        """(turn, branch) of the turns that follow the same item as this one, in order: the versions of one question,
        each with the first branch that shows it. Turns without items are none, but this one is always there; an unknown
        turn has none."""

    async def fork(self, key: SessionKey, target: SessionKey, turns: int | None = None) -> Session:
        """A new session with the first ``turns`` committed turns of the current branch (None = all, 0 = none) and their
        media, and with the mark ``imported``, without the hash of the document: the fork may hold less than that.
        Turns that did not commit are left out. Raises Conflict if ``target`` exists, SessionNotFound."""


class SummaryOperations(Protocol):
    """Rolling summaries: each stands for everything of its branch up to its ``last`` item, which stays stored."""

    async def summaries(self, key: SessionKey, *, branch: str | None = None) -> list[Summary]:
        """Those that hold on a branch, in order."""

    async def claim_summary(self, key: SessionKey, owner: Owner) -> bool:
        """True for one owner at a time; a claim lasts SUMMARY_CLAIM_S."""

    async def add_summary(self, summary: Summary, owner: Owner) -> Summary:
        """With its id; ends the claim. Raises Conflict without the claim, or if ``last`` is not on the current branch
        or not behind the newest summary there."""

    async def release_summary(self, key: SessionKey, owner: Owner) -> None:
        """Ends the claim without a summary."""

    async def undo_summary(self, key: SessionKey) -> Summary | None:
        """Removes the newest that holds on the current branch."""


class SearchIndexing(Protocol):
    async def fold(self, limit: int = 1000) -> int:
        """Takes up to ``limit`` new items into the index; how many are left. Search finds items before that too."""


class SearchOperations(SearchIndexing, Protocol):
    async def search(self, namespace: str, query: SessionQuery) -> list[SearchHit]:
        """Sessions in which any of the words occurs in what a person or a model said, best first; of equal ones the one
        that changed last. What ``sessions/search/text_matching.py`` says holds. Raises InvalidRequest."""


class OpeningIndex(Protocol):
    """Which session began like this? By hashes of the beginnings of what is said (``sessions/matching.py``), so that
    finding out costs the same whatever is stored."""

    async def remember(self, key: SessionKey, scope: str, chain: Mapping[int, str]) -> None:
        """The hash of the visible conversation up to each item (seq -> hash) of the current branch. ``scope`` names who
        asked which model with which instructions; only there it can be found again."""

    async def forget(self, key: SessionKey) -> None:
        """The session is not found by its beginning any more: somebody uses it by its id."""

    async def match(self, namespace: str, scope: str, chain: Sequence[str]) -> OpeningMatch | None:
        """The longest beginning that some session has, of hashes from short to long; of several the one changed last.
        A session that is bound is not found."""


class BindingOperations(Protocol):
    """Which session a notebook (or a kernel without one) talks to. ``root`` is the contents root, so that two servers
    with an Untitled.ipynb each do not share a session; ``path`` is the notebook's path below it, or ``kernel:ID``."""

    async def bind(self, namespace: str, root: str, path: str, session: str) -> None: ...

    async def unbind(self, namespace: str, root: str, path: str) -> bool: ...

    async def bound(self, namespace: str, root: str, path: str) -> str | None: ...

    async def move(self, root: str, old: str, new: str) -> int:
        """Follows a rename of a file or a directory in every namespace; returns how many bindings moved."""

    async def paths(self, root: str, session: SessionKey) -> list[str]: ...


class SnapshotOperations(Protocol):
    """Sessions that leave and arrive in one piece: export, import, a copy of a notebook."""

    async def whole(self, key: SessionKey) -> SessionSnapshot | None:
        """Everything of all branches at one revision; media come without data."""

    async def restore(self, whole: SessionSnapshot, blobs: Mapping[str, bytes], *, replace: bool = False) -> Session:
        """Stores a session that is not there, as it is: seqs, ids, times and revision stay; ``accessed`` is now. Its
        turns are closed. Raises Conflict if it is there, InvalidRequest for a medium without its bytes. With
        ``replace`` one that is there goes in the same transaction: its notebooks keep the new one, whose revision is a
        later one. Raises SessionBusy then, for one with an open turn."""

    async def clear_outputs(self, key: SessionKey, turns: Collection[str], text: str) -> int:
        """What tools gave back in these turns is ``text`` from now on, their media are gone, and the turns' records say
        when (``outputs_cleared``); how many results were changed. Raises SessionBusy, SessionNotFound."""


class StoreMaintenance(Protocol):
    async def verify(self, namespace: str | None = None) -> list[StoreFault]:
        """What should not be: a call without a result in a closed turn, a result without a call, items of no turn,
        bodies that do not decode, media without bytes, a wrong head. Changes nothing."""

    async def repair(self, namespace: str | None = None) -> list[StoreFault]:
        """Mends what ``verify`` finds, in one transaction, and tells it; what can not be mended is set aside, never
        deleted."""

    async def stats(self, namespace: str | None = None) -> Mapping[str, Any]:
        """Counts and bytes: sessions, turns, items, media, size, and when first and last used."""

    async def bindings(self, namespace: str | None = None) -> list[NotebookBinding]:
        """All bindings."""

    async def forget_set_aside(self, namespace: str | None = None) -> None:
        """Removes what ``repair`` set aside."""

    async def vacuum(self) -> int:
        """Gives unused bytes back to the disk, deleted text included; returns how many."""


class RetentionQueries(Protocol):
    """What a store needs so that sessions can go by age or by number (``sessions/retention.py``)."""

    async def idle(self, until: float) -> list[Session]:
        """Of all namespaces, those not used since ``until`` (epoch seconds), without those that have an open turn; the
        one that was used longest ago first."""

    async def excess(self, cap: int, namespace: str | None = None) -> list[Session]:
        """As many as there are beyond ``cap`` in the namespace (None: in each), those used longest ago first, without
        those that have an open turn."""


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
    """A store that keeps files."""


class KeptStore(SessionStore, StoreMaintenance, Grants, RetentionQueries, Protocol):
    """A store that outlives its process, and is looked after. Parts that a store of one's own may leave out."""
