"""Checks that a transcript could have been read from a store: numbers, order, the branch tree, and calls with their
results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from agent_kernel.core.session import Item, Turn
from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.message_list import pending_calls

MAX_SEGMENTS = 100_000
MAX_NAME = 200


class TranscriptValidator:
    """Checks one transcript. Error messages name the document ``place``. The time is linear in the size of the
    transcript, whatever the shape of its branch tree."""

    def __init__(self, place: Fields, transcript: Transcript) -> None:
        self._place = place
        self._whole = transcript
        self._by_id: dict[str, Turn] = {turn.id: turn for turn in transcript.turns}
        self._items: dict[int, list[Item]] = {}

    def check(self) -> None:
        """Check everything. Raises InvalidRequest."""
        self._check_turns()
        self._check_segments()
        self._check_branches()
        self._check_items()
        self._check_cuts()
        self._check_summaries()

    def _require(self, right: bool, why: str) -> None:
        if not right:
            self._place.refuse(why)

    def _check_turns(self) -> None:
        turns, session = self._whole.turns, self._whole.session
        ordinals = [turn.ordinal for turn in turns]
        self._require(
            all(low < high for low, high in pairwise([0, *ordinals])) and len(self._by_id) == len(turns),
            "turns are not numbered upwards from 1, or an id is used twice",
        )
        self._require(max(ordinals, default=0) <= session.turns, "the session counts fewer turns than it has")
        self._require(all(turn.state != "open" for turn in turns[:-1]), "a turn is open although another followed")
        self._require(all(turn.since <= session.head for turn in turns), "a turn begins after the last item")

    def _check_segments(self) -> None:
        segments, head = self._whole.tree.segments, self._whole.session.head
        self._require(len(segments) <= MAX_SEGMENTS, f"there are more than {MAX_SEGMENTS} segments")
        since = {0: 0}
        for segment in segments:
            ordered = segment.parent in since and segment.id > max(segment.parent, next(reversed(since)))
            self._require(ordered, "a segment has no parent before it, or segments are not in order")
            fits = since[segment.parent] <= segment.since <= head
            self._require(fits, "a segment begins before its parent, or after the last item")
            since[segment.id] = segment.since
        places = self._whole.tree.turns
        self._require(all(at in since for at in places.values()), "the segment of a turn does not exist")
        self._require(
            all(self._by_id[turn].since >= since[at] for turn, at in places.items()),
            "a turn begins before its segment",
        )

    def _check_branches(self) -> None:
        branches, tree = self._whole.branches, self._whole.tree
        names = [branch.name for branch in branches]
        self._require(len(set(names)) == len(names), "two branches have the same name")
        self._require(
            all(1 <= len(name) <= MAX_NAME and name.isprintable() for name in names),
            f"the name of a branch must have 1 to {MAX_NAME} printable characters",
        )
        known = {0, *(segment.id for segment in tree.segments)}
        self._require(all(end in known for end in tree.ends.values()), "the last segment of a branch does not exist")
        self._require(not branches or self._whole.session.branch in names, "the current branch does not exist")
        self._require(bool(branches) or not tree.segments, "there are segments but no branches")

    def _check_items(self) -> None:
        """Check that turns follow each other within a segment, and that every call of a closed turn has its result."""
        items = self._whole.items
        numbered = all(low < high for low, high in pairwise([0, *(item.seq for item in items)]))
        self._require(numbered, "items are not numbered upwards from 1")
        head = items[-1].seq if items else 0
        self._require(head <= self._whole.session.head, "the session counts fewer items than it has")
        for item in items:
            turn = self._by_id.get(item.turn)
            self._require(
                turn is not None and item.seq > turn.since,
                "an item has no turn, or is older than its turn",
            )
            self._items.setdefault(self._whole.tree.turns.get(item.turn, 0), []).append(item)
        for grown in self._items.values():
            ordinals = [self._by_id[item.turn].ordinal for item in grown]
            self._require(ordinals == sorted(ordinals), "an item follows items of a later turn")

    def _check_cuts(self) -> None:
        """Check that no branch begins between a call and its results."""
        seqs = {at: [item.seq for item in grown] for at, grown in self._items.items()}
        complete = {at: [whole for _, whole in self._pair_results(grown)] for at, grown in self._items.items()}
        for segment in self._whole.tree.segments:
            inherited = bisect_right(seqs.get(segment.parent, ()), segment.since)
            if inherited and not complete[segment.parent][inherited - 1]:
                self._place.refuse("a branch begins between a call and its results")

    def _pair_results(self, grown: list[Item]) -> Iterator[tuple[Item, bool]]:
        waiting: dict[str, str] = {}
        turn = ""
        for item in grown:
            self._require(not waiting or item.turn == turn, f"a call of turn {turn[:80]!r} has no result")
            turn = item.turn
            waiting = pending_calls(self._place, waiting, item.message)
            yield item, not waiting
        if waiting and self._by_id[turn].state != "open":
            self._place.refuse(f"a call of turn {turn[:80]!r} has no result")

    def _check_summaries(self) -> None:
        seqs = {item.seq for item in self._whole.items}
        self._require(
            all(summary.last in seqs for summary in self._whole.summaries),
            "the last item of a summary does not exist",
        )
