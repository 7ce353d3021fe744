"""Merges two versions of a session that grew apart, for example on two branches of a git repository. The functions have
no side effects.

Turns that only ``theirs`` has are added after the items of ``ours``, with new numbers. Where both versions continued
the same branch, the turns of ``theirs`` become a branch of their own. This is unrelated to ``history_merge``, which
merges the messages of a request with a stored session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.session import Branch, Item, Session, SessionKey, Summary, Turn
from agent_kernel.core.session_tree import BranchTree, Transcript, TreeSegment, next_free_name, resolve_branches

T = TypeVar("T")


def merge_transcripts(base: Transcript | None, ours: Transcript, theirs: Transcript) -> Transcript:
    """Return one session with the turns of both versions. ``base`` is the version from which both began; None if it is
    unknown.

    If one version contains the other, it is returned unchanged. Otherwise the result has a session id of its own, which
    is the same for both sides of the merge: a store that has only one version must not take it for that version. Text
    that only one side changed, such as a title or an output that was cleared, is taken from that side; if both sides
    changed it, from ``ours``. Turns that ``ours`` removed since ``base`` stay removed. Raises InvalidRequest for
    sessions without a common turn, for a running turn, and if common turns have different numbers.
    """
    ids = [f"{version.session.key.id} {version.session.revision}" for version in (ours, theirs)]
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    key = SessionKey(ours.session.key.namespace, f"session-merged-{digest[:16]}")
    return _Merge(base and _with_key(base, key), _with_key(ours, key), _with_key(theirs, key)).merge((ours, theirs))


def _with_key(version: Transcript, key: SessionKey) -> Transcript:
    return replace(
        version,
        session=replace(version.session, key=key),
        turns=tuple(replace(turn, key=key) for turn in version.turns),
        summaries=tuple(replace(summary, key=key) for summary in version.summaries),
    )


def _choose(base: T | None, ours: T, theirs: T) -> T:
    """Return ``theirs`` if ``theirs`` differs from ``base`` and ``ours`` does not; otherwise return ``ours``."""
    return theirs if base is not None and ours == base else ours


class _Merge:
    """The state of merging the transcript ``theirs`` into the transcript ``ours``. ``moved`` maps the sequence numbers
    of items of ``theirs`` to their numbers in the merged transcript, and ``ordinals`` the numbers of its turns.
    ``homes`` maps a segment (a part of a branch) of ``theirs`` to the segment that gets its new turns."""

    def __init__(self, base: Transcript | None, ours: Transcript, theirs: Transcript) -> None:
        self._base, self._ours, self._theirs = base, ours, theirs
        known = {turn.id for turn in ours.turns}
        removed = {turn.id for turn in base.turns} - known if base else set[str]()
        self._shared = known & {turn.id for turn in theirs.turns}
        self._new = {turn.id for turn in theirs.turns} - known - removed
        # Both versions give the next free number to their next segment, so an equal number alone does not mean the same
        # segment. The segment must also begin in the part that both versions have.
        last = max((item.seq for item in ours.items if item.turn in self._shared), default=0)
        before = base.tree.segments if base else ours.tree.segments
        alike = (segment for segment in ours.tree.segments if segment in theirs.tree.segments and segment in before)
        self._common = {segment for segment in alike if segment.since <= last}
        self._segments = list(ours.tree.segments)
        self._placed = dict(ours.tree.turns)
        self._turns: list[Turn] = []
        self._items: list[Item] = []
        self._moved: dict[int, int] = {}
        self._ordinals: dict[int, int] = {}
        self._homes: dict[int, int] = {}
        self._items_of: dict[str, list[Item]] = {turn.id: [] for turn in theirs.turns}
        for item in theirs.items:
            self._items_of[item.turn].append(item)
        self._head, self._ordinal = ours.session.head, ours.session.turns

    def merge(self, originals: tuple[Transcript, Transcript]) -> Transcript:
        self._check()
        turns, items = self._shared_turns(), self._shared_items()
        for original, version in zip(originals, (self._ours, self._theirs), strict=True):
            if self._contains_all(version, turns, items):
                return original
        for segment in (TreeSegment(0, 0, 0), *self._theirs.tree.segments):
            self._place(segment)
        branches, ends = self._branches()
        tree = BranchTree(tuple(self._segments), ends, self._placed)
        turns, items = (*turns, *self._turns), (*items, *self._items)
        return replace(
            self._ours,
            session=self._session(),
            turns=turns,
            items=items,
            branches=tuple(resolve_branches(branches, tree, turns, items)),
            summaries=(*self._ours.summaries, *self._new_summaries()),
            tree=tree,
            files=(*self._ours.files, *self._new_files()),
            blobs={**self._theirs.blobs, **self._ours.blobs},
        )

    def _contains_all(self, version: Transcript, turns: Sequence[Turn], items: Sequence[Item]) -> bool:
        """Return whether ``version`` equals the result of the merge. ``turns`` and ``items`` are those of the result,
        except the turns that only ``theirs`` has."""
        by_id = {turn.id: turn for turn in version.turns}
        by_seq = {item.seq: item for item in version.items}
        names = {branch.name for version in (self._ours, self._theirs) for branch in version.branches}
        return (
            by_id.keys() == {turn.id for turn in turns} | self._new
            and all(by_id[turn.id] == turn for turn in turns)
            and all(by_seq.get(item.seq) == item for item in items)
            and names == {branch.name for branch in version.branches}
            and _description(version.session) == _description(self._session())
        )

    def _check(self) -> None:
        if not self._shared:
            raise InvalidRequest("The two versions have no turn in common: they are different conversations.")
        if any(turn.state == "open" for turn in (*self._ours.turns, *self._theirs.turns)):
            raise InvalidRequest(
                "A turn is still running in one of the two versions, so they cannot be merged.",
                hint="Merge them after the turn has ended.",
            )
        places = [self._numbers(version) for version in (self._ours, self._theirs)]
        if places[0] != places[1]:
            raise InvalidRequest("The two versions number their common turns differently, so they cannot be merged.")

    def _numbers(self, version: Transcript) -> set[tuple[str, int, int]]:
        """Return the turn, the segment of the turn, and the sequence number of each item of ``version`` whose turn both
        versions have."""
        return {
            (item.turn, version.tree.turns.get(item.turn, 0), item.seq)
            for item in version.items
            if item.turn in self._shared
        }

    def _shared_turns(self) -> tuple[Turn, ...]:
        """Return the turns of ``ours``. A turn that both versions have contains the changes of both."""
        before = {turn.id: turn for turn in self._base.turns} if self._base else {}
        theirs = {turn.id: turn for turn in self._theirs.turns}
        return tuple(
            _choose(before.get(turn.id), turn, theirs[turn.id]) if turn.id in self._shared else turn
            for turn in self._ours.turns
        )

    def _shared_items(self) -> tuple[Item, ...]:
        before = {(item.turn, item.seq): item for item in self._base.items} if self._base else {}
        theirs = {(item.turn, item.seq): item for item in self._theirs.items}
        return tuple(
            _choose(before.get((item.turn, item.seq)), item, theirs[item.turn, item.seq])
            if item.turn in self._shared
            else item
            for item in self._ours.items
        )

    def _new_summaries(self) -> Iterator[Summary]:
        for summary in self._theirs.summaries:
            if summary.last in self._moved:
                yield replace(summary, last=self._moved[summary.last])

    def _new_files(self) -> Iterator[File]:
        """Yield the files of ``theirs`` that ``ours`` does not have. ``File.turn`` counts turns from 0,
        ``Turn.ordinal`` from 1, so the number of the turn is converted."""
        known = {file.id for file in self._ours.files}
        for file in self._theirs.files:
            if file.id not in known:
                yield replace(file, turn=self._ordinals.get(file.turn + 1, file.turn + 1) - 1)

    def _place(self, segment: TreeSegment) -> None:
        """Add the new turns of a segment of ``theirs``."""
        new = [
            turn for turn in self._theirs.turns if turn.id in self._new and _place_of(self._theirs, turn) == segment.id
        ]
        if segment.id and segment not in self._common:
            self._homes[segment.id] = self._add_segment(*self._locate(segment.parent, segment.since))
        elif new:
            own_turns = (turn for turn in self._ours.turns if turn.id not in self._shared)
            grew = any(_place_of(self._ours, turn) == segment.id for turn in own_turns)
            cut = self._last_shared(segment.id, self._theirs.session.head)
            self._homes[segment.id] = self._add_segment(segment.id, cut) if grew else segment.id
        for turn in new:
            self._add_turn(turn, self._homes[segment.id])

    def _add_segment(self, parent: int, since: int) -> int:
        used = [0, *(segment.id for segment in self._segments), *self._ours.tree.ends.values()]
        self._segments.append(TreeSegment(max(used) + 1, parent, since))
        return self._segments[-1].id

    def _add_turn(self, turn: Turn, segment: int) -> None:
        self._ordinal += 1
        self._ordinals[turn.ordinal] = self._ordinal
        self._turns.append(replace(turn, ordinal=self._ordinal, since=self._head))
        if segment:
            self._placed[turn.id] = segment
        for item in self._items_of[turn.id]:
            self._head += 1
            self._moved[item.seq] = self._head
            self._items.append(replace(item, seq=self._head))

    def _locate(self, parent: int, since: int) -> tuple[int, int]:
        """Return the segment, and the sequence number of the item, after which a segment of ``theirs`` begins in the
        result. In ``theirs`` it begins after item ``since`` of ``parent``."""
        seqs = [item.seq for item in self._segment_items(parent) if item.seq <= since]
        if seqs and seqs[-1] in self._moved:
            return self._homes[parent], self._moved[seqs[-1]]
        if parent and parent not in {segment.id for segment in self._common}:
            home = next(segment for segment in self._segments if segment.id == self._homes[parent])
            return home.id, home.since
        return parent, self._last_shared(parent, since)

    def _last_shared(self, segment: int, until: int) -> int:
        """Return the sequence number of the last item of the segment up to ``until`` whose turn both versions have. If
        there is no such item, return the sequence number after which the segment begins."""
        since = next((shared.since for shared in self._ours.tree.segments if shared.id == segment), 0)
        seqs = (item.seq for item in self._segment_items(segment) if item.turn in self._shared and item.seq <= until)
        return max(seqs, default=since)

    def _segment_items(self, segment: int) -> Iterable[Item]:
        placed = self._theirs.tree.turns
        return (item for item in self._theirs.items if placed.get(item.turn, 0) == segment)

    def _branches(self) -> tuple[list[Branch], dict[str, int]]:
        """Return the branches of both versions and their last segments. If ``ours`` has a branch of the same name that
        a branch of ``theirs`` does not continue, the branch of ``theirs`` gets a free name."""
        branches, ends = _branches_of(self._ours)
        before = {branch.name for branch in self._base.branches} if self._base else set()
        their_branches, their_ends = _branches_of(self._theirs)
        for branch in their_branches:
            end = their_ends[branch.name]
            target = self._homes.get(end, end)
            is_known = branch.name in ends or (branch.name in before and end not in self._homes)
            if is_known and (end not in self._homes or ends.get(branch.name) == target):
                continue
            name = branch.name if branch.name not in ends else next_free_name(ends)
            parent = branch.name if name != branch.name else branch.parent
            branches.append(replace(branch, name=name, parent=parent if parent in ends else "", current=False))
            ends[name] = target
        return branches, ends

    def _session(self) -> Session:
        ours, theirs, base = self._ours.session, self._theirs.session, self._base.session if self._base else None
        metadata = {**theirs.metadata, **ours.metadata}
        return replace(
            ours,
            title=_choose(base.title if base else None, ours.title, theirs.title),
            updated=max(ours.updated, theirs.updated),
            head=self._head,
            revision=max(ours.revision, theirs.revision) + 1,
            turns=self._ordinal,
            tags=tuple(dict.fromkeys((*ours.tags, *theirs.tags))),
            metadata=_choose(base.metadata if base else None, metadata, theirs.metadata),
            context=_choose(base.context if base else None, ours.context, theirs.context),
        )


def _branches_of(version: Transcript) -> tuple[list[Branch], dict[str, int]]:
    """Return the branches and their last segments; one branch for a session that has never branched."""
    session = version.session
    branches = version.branches or (Branch(session.branch, created=session.created, current=True),)
    return list(branches), {branch.name: version.tree.ends.get(branch.name, 0) for branch in branches}


def _place_of(version: Transcript, turn: Turn) -> int:
    return version.tree.turns.get(turn.id, 0)


def _description(session: Session) -> tuple[object, ...]:
    return session.title, session.tags, session.metadata, session.context
