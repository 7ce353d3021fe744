"""A session as one value: its turns, items, branches and summaries, and where in the tree each of them is. Pure.

The turns of a session are a tree. A segment is a piece of it that grew at one end: its own turns, behind what
``parent`` has up to item ``since``. Segment 0 is the beginning; a branch is a name for the segment at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agent_kernel.sessions.model import Branch, Item, Session, Summary, Turn

END = 2**62
"""Behind every seq."""


@dataclass(frozen=True, slots=True)
class Segment:
    """``parent`` is smaller than ``id``, and begins at or before ``since``."""

    id: int
    parent: int
    since: int


@dataclass(frozen=True, slots=True)
class Tree:
    """``ends``: branch -> segment. ``turns``: turn -> segment, for those that are not in segment 0; an item is where
    its turn is."""

    segments: tuple[Segment, ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)

    def way(self, branch: str) -> list[tuple[int, int]]:
        """(segment, its last seq that belongs to the branch), from the end to the beginning; empty: no such branch."""
        by_id = {segment.id: segment for segment in self.segments}
        if branch not in self.ends:
            return []
        at, until = self.ends[branch], END
        pieces = [(at, until)]
        while at:
            at, until = by_id[at].parent, min(until, by_id[at].since)
            pieces.append((at, until))
        return pieces


@dataclass(frozen=True, slots=True)
class Whole:
    """In the order in which they were stored. Without ``branches`` it is one line, as of a session that never
    branched."""

    session: Session
    turns: tuple[Turn, ...]
    items: tuple[Item, ...]
    branches: tuple[Branch, ...] = ()
    summaries: tuple[Summary, ...] = ()
    tree: Tree = field(default_factory=Tree)

    def shown(self, branch: str | None = None) -> tuple[tuple[Turn, ...], tuple[Item, ...]]:
        """The turns and items of a branch (None = the current one), in order; nothing of an unknown one."""
        if not self.branches:
            return (self.turns, self.items) if branch in (None, self.session.branch) else ((), ())
        until = dict(self.tree.way(self.session.branch if branch is None else branch))
        where = {turn.id: self.tree.turns.get(turn.id, 0) for turn in self.turns}
        turns = tuple(turn for turn in self.turns if turn.since < until.get(where[turn.id], -1))
        items = tuple(item for item in self.items if item.seq <= until.get(where[item.turn], 0))
        return turns, items


def extents(branches: Sequence[Branch], tree: Tree, turns: Sequence[Turn], items: Sequence[Item]) -> Iterator[Branch]:
    """The branches with what follows from the tree: since, head and turns."""
    segment_of = {turn.id: tree.turns.get(turn.id, 0) for turn in turns}
    seqs: dict[int, list[int]] = {}
    opened: dict[int, list[int]] = {}
    for item in items:
        seqs.setdefault(segment_of[item.turn], []).append(item.seq)
    for turn in turns:
        opened.setdefault(segment_of[turn.id], []).append(turn.since)
    since = {segment.id: segment.since for segment in tree.segments}
    for branch in branches:
        way = tree.way(branch.name)
        heads = [max((seq for seq in seqs.get(at, ()) if seq <= until), default=0) for at, until in way]
        count = sum(1 for at, until in way for begun in opened.get(at, ()) if begun < until)
        yield replace(branch, since=since.get(tree.ends[branch.name], 0), head=max(heads, default=0), turns=count)


def in_order(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    return tuple(sorted(turns, key=attrgetter("ordinal")))
