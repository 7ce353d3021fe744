"""Defines a session as one value: its turns, items, branches and summaries, and the position of each in the tree of
turns.

The turns of a session form a tree of segments. A segment is a sequence of turns; new turns are appended at its end. A
segment begins after the item ``since`` of its ``parent`` segment. Segment 0 is the beginning of the session. A branch
is a name for the segment in which it ends. This module does no I/O.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media
from agent_kernel.core.session import Branch, Item, Session, SessionKey, Summary, Turn

AFTER_EVERY_SEQ = 2**62
"""A number that is larger than the seq of every item."""


@dataclass(frozen=True, slots=True)
class TreeSegment:
    """A part of the tree, which begins after item ``since`` of the segment ``parent``. ``parent`` is always smaller
    than ``id``. The ``since`` of the parent segment is never larger than that of this segment."""

    id: int
    parent: int
    since: int


@dataclass(frozen=True, slots=True)
class BranchTree:
    """The segments of a session.

    ``ends`` maps a branch to its last segment. ``turns`` maps a turn to its segment, for turns outside segment 0; an
    item is in the segment of its turn.
    """

    segments: tuple[TreeSegment, ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)

    def way(self, branch: str) -> list[tuple[int, int]]:
        """Return the segments of a branch, from its last to segment 0, each as (segment, last seq that belongs to the
        branch); empty for an unknown branch."""
        by_id = {segment.id: segment for segment in self.segments}
        if branch not in self.ends:
            return []
        at, until = self.ends[branch], AFTER_EVERY_SEQ
        pieces = [(at, until)]
        while at:
            at, until = by_id[at].parent, min(until, by_id[at].since)
            pieces.append((at, until))
        return pieces


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """Everything of a session at one revision, in the order in which it was stored.

    If ``branches`` is empty, the session has never branched: its turns are one sequence.
    """

    session: Session
    turns: tuple[Turn, ...]
    items: tuple[Item, ...]
    branches: tuple[Branch, ...] = ()
    summaries: tuple[Summary, ...] = ()
    tree: BranchTree = field(default_factory=BranchTree)
    files: tuple[File, ...] = ()

    @property
    def media(self) -> dict[str, Media]:
        """All media by hash, ordered by their first mention."""
        return {medium.hash: medium for item in self.items for medium in item.message.media}

    def up_to(self, turn: str) -> tuple[Item, ...] | None:
        """Return the items of a branch from its beginning to the last item of a turn, in order. The branch is the
        current one if it contains the whole turn, otherwise the first that does. None for an unknown turn."""
        last = max((item.seq for item in self.items if item.turn == turn), default=0)
        names = [None, *[branch.name for branch in self.branches if branch.name != self.session.branch]]
        for name in names:
            turns, items = self.select_branch(name)
            # A branch can begin within the turn, after its question.
            if any(known.id == turn for known in turns) and (not last or any(item.seq == last for item in items)):
                return tuple(item for item in items if item.seq <= last)
        return None

    def select_branch(self, branch: str | None = None) -> tuple[tuple[Turn, ...], tuple[Item, ...]]:
        """Return the turns and items of a branch (None = the current one), in order; both empty for an unknown
        branch."""
        if not self.branches:
            return (self.turns, self.items) if branch in (None, self.session.branch) else ((), ())
        until = dict(self.tree.way(self.session.branch if branch is None else branch))
        where = {turn.id: self.tree.turns.get(turn.id, 0) for turn in self.turns}
        turns = tuple(turn for turn in self.turns if turn.since < until.get(where[turn.id], -1))
        items = tuple(item for item in self.items if item.seq <= until.get(where[item.turn], 0))
        return turns, items


@dataclass(frozen=True, slots=True)
class Transcript(SessionSnapshot):
    """A session snapshot with the bytes of its media by hash, as far as they are known.

    ``left_out`` counts the contents of the source document that this value cannot represent, by kind (videos, files,
    results without a call).
    """

    blobs: Mapping[str, bytes] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[str, ...]:
        """The hashes to which items and files refer and whose bytes are not in ``blobs``, in order of first mention.
        The bytes may be in files beside the document."""
        return tuple(digest for digest in self._sizes if digest not in self.blobs)

    @property
    def _sizes(self) -> dict[str, int]:
        media = {digest: medium.size for digest, medium in self.media.items()}
        return media | {file.hash: file.size for file in self.files if file.hash}

    def with_files(self, files: Mapping[str, bytes]) -> Transcript:
        """Return the transcript with the bytes of ``files`` (hash -> bytes) to which it refers. Raises InvalidRequest
        if bytes do not match their hash."""
        sizes = self._sizes
        needed = {digest: data for digest, data in files.items() if digest in sizes}
        for digest, data in needed.items():
            if hashlib.sha256(data).hexdigest() != digest or len(data) != sizes[digest]:
                raise InvalidRequest(f"The bytes of the file {digest} do not match the hash in its name.")
        return replace(self, blobs={**self.blobs, **needed})


def next_free_name(names: Collection[str]) -> str:
    """Return the name of a new branch, ``branch-NUMBER``, which is not among ``names``."""
    number = len(names) + 1
    while f"branch-{number}" in names:
        number += 1
    return f"branch-{number}"


def resolve_branches(
    branches: Sequence[Branch], tree: BranchTree, turns: Sequence[Turn], items: Sequence[Item]
) -> Iterator[Branch]:
    """Yield the branches with the fields that can be computed from the tree: ``since``, ``head`` and ``turns``.

    A segment begins after an item of its parent segment. A branch that ends in it contains everything in the parent up
    to that item, followed by the segment's own items.
    """
    segment_of = {turn.id: tree.turns.get(turn.id, 0) for turn in turns}
    seqs: dict[int, list[int]] = {}
    opened: dict[int, list[int]] = {}
    for item in items:
        seqs.setdefault(segment_of[item.turn], []).append(item.seq)
    for turn in turns:
        opened.setdefault(segment_of[turn.id], []).append(turn.since)
    before = {0: (0, 0, 0)}
    # ``before`` maps a segment to (since, seq of the newest item before the segment, number of turns up to that item).
    for segment in tree.segments:
        _, head, count = before[segment.parent]
        visible_turns = bisect_right(seqs.get(segment.parent, ()), segment.since)
        head = seqs[segment.parent][visible_turns - 1] if visible_turns else head
        count += bisect_left(opened.get(segment.parent, ()), segment.since)
        before[segment.id] = (segment.since, head, count)
    for branch in branches:
        end = tree.ends[branch.name]
        since, head, count = before[end]
        own = seqs.get(end, ())
        yield replace(branch, since=since, head=own[-1] if own else head, turns=count + len(opened.get(end, ())))


def session_key_of(value: object) -> SessionKey | None:
    """Return the key of the session to which a key, a turn, a summary or a whole session belongs; None for any other
    value, such as a namespace."""
    owner = getattr(value, "session", value)
    key = getattr(owner, "key", owner)
    return key if isinstance(key, SessionKey) else None
