"""A session as one value: its turns, items, branches and summaries, and where in the tree each of them is. Pure.

The turns of a session are a tree. A segment is a piece of it that grew at one end: its own turns, behind what
``parent`` has up to item ``since``. Segment 0 is the beginning; a branch is a name for the segment at its end.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media
from agent_kernel.core.session import Branch, Item, Session, Summary, Turn

AFTER_EVERY_SEQ = 2**62
"""Behind every seq."""


@dataclass(frozen=True, slots=True)
class TreeSegment:
    """``parent`` is smaller than ``id``, and begins at or before ``since``."""

    id: int
    parent: int
    since: int


@dataclass(frozen=True, slots=True)
class BranchTree:
    """``ends``: branch -> segment. ``turns``: turn -> segment, for those that are not in segment 0; an item is where
    its turn is."""

    segments: tuple[TreeSegment, ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)

    def way(self, branch: str) -> list[tuple[int, int]]:
        """(segment, its last seq that belongs to the branch), from the end to the beginning; empty: no such branch."""
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
    """In the order in which they were stored. Without ``branches`` it is one line, as of a session that never
    branched."""

    session: Session
    turns: tuple[Turn, ...]
    items: tuple[Item, ...]
    branches: tuple[Branch, ...] = ()
    summaries: tuple[Summary, ...] = ()
    tree: BranchTree = field(default_factory=BranchTree)
    files: tuple[File, ...] = ()

    @property
    def media(self) -> dict[str, Media]:
        """By hash, in the order in which they are named first."""
        return {medium.hash: medium for item in self.items for medium in item.message.media}

    def up_to(self, turn: str) -> tuple[Item, ...] | None:
        """The items that lead to the end of a turn, in order, on the branch where it is; None where it is unknown."""
        names = [None, *[branch.name for branch in self.branches if branch.name != self.session.branch]]
        for name in names:
            turns, items = self.shown(name)
            if any(one.id == turn for one in turns):
                last = max((item.seq for item in items if item.turn == turn), default=0)
                return tuple(item for item in items if item.seq <= last)
        return None

    def shown(self, branch: str | None = None) -> tuple[tuple[Turn, ...], tuple[Item, ...]]:
        """The turns and items of a branch (None = the current one), in order; nothing of an unknown one."""
        if not self.branches:
            return (self.turns, self.items) if branch in (None, self.session.branch) else ((), ())
        until = dict(self.tree.way(self.session.branch if branch is None else branch))
        where = {turn.id: self.tree.turns.get(turn.id, 0) for turn in self.turns}
        turns = tuple(turn for turn in self.turns if turn.since < until.get(where[turn.id], -1))
        items = tuple(item for item in self.items if item.seq <= until.get(where[item.turn], 0))
        return turns, items


@dataclass(frozen=True, slots=True)
class Transcript(SessionSnapshot):
    """With its media by hash, as far as they are known. ``left_out`` counts what a document had and this value has no
    place for, by a word for it (videos, files, results without a call)."""

    blobs: Mapping[str, bytes] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[str, ...]:
        """Hashes that items and files name and ``blobs`` lacks, in order: files beside the document, if they exist."""
        return tuple(digest for digest in self._sizes if digest not in self.blobs)

    @property
    def _sizes(self) -> dict[str, int]:
        media = {digest: medium.size for digest, medium in self.media.items()}
        return media | {file.hash: file.size for file in self.files if file.hash}

    def with_files(self, files: Mapping[str, bytes]) -> Transcript:
        """The absent media, read from files that bear their hashes. Raises InvalidRequest if one is something else."""
        sizes = self._sizes
        wanted = {digest: data for digest, data in files.items() if digest in sizes}
        for digest, data in wanted.items():
            if hashlib.sha256(data).hexdigest() != digest or len(data) != sizes[digest]:
                raise InvalidRequest(f"The file {digest} is not the medium it is named after.")
        return replace(self, blobs={**self.blobs, **wanted})


def resolve_branches(
    branches: Sequence[Branch], tree: BranchTree, turns: Sequence[Turn], items: Sequence[Item]
) -> Iterator[Branch]:
    """The branches with what follows from the tree: since, head and turns. A child begins behind its parent's
    beginning, so what a segment shows is what its parent shows up to there, and its own."""
    segment_of = {turn.id: tree.turns.get(turn.id, 0) for turn in turns}
    seqs: dict[int, list[int]] = {}
    opened: dict[int, list[int]] = {}
    for item in items:
        seqs.setdefault(segment_of[item.turn], []).append(item.seq)
    for turn in turns:
        opened.setdefault(segment_of[turn.id], []).append(turn.since)
    before = {0: (0, 0, 0)}
    """segment: (since, seq of the newest item that it begins behind, number of turns there)"""
    for segment in tree.segments:
        _, head, count = before[segment.parent]
        shown = bisect_right(seqs.get(segment.parent, ()), segment.since)
        head = seqs[segment.parent][shown - 1] if shown else head
        count += bisect_left(opened.get(segment.parent, ()), segment.since)
        before[segment.id] = (segment.since, head, count)
    for branch in branches:
        end = tree.ends[branch.name]
        since, head, count = before[end]
        own = seqs.get(end, ())
        yield replace(branch, since=since, head=own[-1] if own else head, turns=count + len(opened.get(end, ())))
