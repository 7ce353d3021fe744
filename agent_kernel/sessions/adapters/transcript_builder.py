"""Builds a whole session from the messages and branches that another framework stored. Building the same stored state
again gives the same transcript, so that a repeated copy recognises the sessions that it has written. The functions do
no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import MAIN, Branch, Item, Session, SessionKey, Turn
from agent_kernel.core.session_tree import BranchTree, Transcript, TreeSegment, resolve_branches
from agent_kernel.sessions import serialization

MAX_BRANCH_NAME = 200
ROOT = -1
"""Stands for the number of the message before the first message, which does not exist. No message has a negative
number."""


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message as another framework stored it: its number (not negative, and larger than those of earlier messages),
    the stored text, the time at which it was stored (seconds since the epoch), and its conversion."""

    number: int
    stored: str
    time: float
    message: Message


@dataclass(frozen=True, slots=True)
class SourceBranch:
    """A branch: its name, the time at which it began, and the numbers of its messages in order, from the beginning of
    the conversation. Branches that share their beginning name the same messages."""

    name: str
    created: float
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class SourceSession:
    """A stored conversation. The first of ``branches`` becomes the current branch; without ``branches``, the session
    gets one branch with all messages. ``usage`` maps the number of a message to the token counts of its turn.
    ``record`` is stored with every turn."""

    key: SessionKey
    created: float
    updated: float
    messages: Sequence[SourceMessage]
    record: Mapping[str, Any]
    branches: Sequence[SourceBranch] = ()
    usage: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def build_transcript(source: SourceSession) -> Transcript:
    """Return the session as a store holds it: a visible user message begins a turn, and messages that branches share
    are stored once. Raises InvalidRequest for content that a store cannot hold."""
    numbers = [message.number for message in source.messages]
    named = source.branches or [SourceBranch(MAIN, source.created, numbers)]
    tree = _Tree({number: seq for seq, number in enumerate(numbers, start=1)})
    for branch in named:
        tree.add(branch)
    turns, items = _split_into_turns(source, tree)
    placed = {turn.id: tree.segment_of[numbers[turn.since]] for turn in turns}
    branches = [Branch(branch.name, parent, 0, created=branch.created) for branch, parent in tree.branches]
    whole = BranchTree(
        tuple(tree.segments),
        {branch.name: end for end, (branch, _) in enumerate(tree.branches)},
        {turn: segment for turn, segment in placed.items() if segment},
    )
    current = named[0].name
    resolved = (
        replace(branch, current=branch.name == current) for branch in resolve_branches(branches, whole, turns, items)
    )
    times = [source.created, source.updated]
    session = Session(
        source.key,
        created=min(times),
        updated=max(times),
        head=len(items),
        revision=1,
        turns=len(turns),
        branch=current,
        accessed=max(times),
        metadata=source.metadata,
    )
    media = {medium.hash: medium.data for message in source.messages for medium in message.message.media}
    blobs = {digest: data for digest, data in media.items() if data is not None}
    return Transcript(session, tuple(turns), tuple(items), tuple(resolved), tree=whole, blobs=blobs)


class _Tree:
    """The segments of the branch tree. A segment is a run of messages that one or more branches contain in the same
    order. Every message is in exactly one segment, and always follows the same message."""

    def __init__(self, seqs: Mapping[int, int]) -> None:
        self.seqs = seqs
        self.segments: list[TreeSegment] = []
        self.branches: list[tuple[SourceBranch, str]] = []
        self.segment_of: dict[int, int] = {}
        self.previous: dict[int, int] = {}
        """Maps the number of each message to the number of the message before it; ROOT stands before the first message
        of the conversation."""

    def add(self, branch: SourceBranch) -> None:
        """Add a branch: messages that it shares with an earlier branch stay where they are, and the other messages form
        a new segment after them."""
        if not (1 <= len(branch.name) <= MAX_BRANCH_NAME and branch.name.isprintable()):
            raise InvalidRequest(f"The name of a branch must have 1 to {MAX_BRANCH_NAME} printable characters.")
        end = len(self.branches)
        shared, last = 0, ROOT
        for number in branch.numbers:
            if self.previous.get(number) != last:
                break
            shared, last = shared + 1, number
        parent = self.segment_of.get(last, 0)
        if end:
            self.segments.append(TreeSegment(end, parent, self.seqs.get(last, 0)))
        for number in branch.numbers[shared:]:
            if number in self.previous or self.seqs[number] <= self.seqs.get(last, 0):
                raise InvalidRequest(
                    f"The branch {branch.name!r} and an earlier branch have different messages before the message "
                    f"{number}."
                )
            self.previous[number], self.segment_of[number] = last, end
            last = number
        self.branches.append((branch, self.branches[parent][0].name if end else ""))


def _split_into_turns(source: SourceSession, tree: _Tree) -> tuple[list[Turn], list[Item]]:
    turns: list[Turn] = []
    items: list[Item] = []
    newest: dict[int, int] = {}
    """Maps each segment to the index, in ``turns``, of its newest turn."""
    for message, digest in _with_digests(source.messages, tree.previous):
        segment = tree.segment_of[message.number]
        starts = message.message.role == "user" and not message.message.hidden
        if starts or segment not in newest:
            newest[segment] = len(turns)
            turns.append(
                Turn(
                    f"turn-{digest}",
                    source.key,
                    len(turns) + 1,
                    "committed",
                    opened=message.time,
                    since=len(items),
                    record=source.record,
                )
            )
        at = newest[segment]
        usage = turns[at].usage or source.usage.get(message.number, {})
        turns[at] = replace(turns[at], closed=message.time, usage=usage)
        stored = serialization.as_stored(message.message, serialization.encode(message.message))
        items.append(Item(len(items) + 1, turns[at].id, stored, message.time))
    return turns, items


def _with_digests(
    messages: Sequence[SourceMessage], previous: Mapping[int, int]
) -> Iterator[tuple[SourceMessage, str]]:
    """Yield each message with a hash of everything up to it on its branch. An id of a turn that is made of this hash
    changes when an earlier message changes, so a copy never takes an edited conversation for a continued one."""
    digests: dict[int, bytes] = {}
    for message in messages:
        before = digests.get(previous[message.number], b"")
        body = before + f"{message.number} ".encode() + message.stored.encode("utf-8", "surrogatepass")
        digests[message.number] = hashlib.sha256(body).digest()
        yield message, digests[message.number].hex()[:32]
