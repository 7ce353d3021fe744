"""Reads the documents of ``transcript.py`` and sessions that mistral.rs serialized from untrusted bytes. The functions
have no side effects."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast, get_args

from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Media, Message
from agent_kernel.core.session import MAIN, Branch, Item, Session, SessionKey, Summary, Turn, check_id
from agent_kernel.core.session_tree import BranchTree, Transcript, TreeSegment, resolve_branches
from agent_kernel.core.wire.sidecar_rows import expand_rows
from agent_kernel.sessions.export.formats import mistralrs_files
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.formats.message_list import pending_calls
from agent_kernel.sessions.export.formats.message_reader import MessageReader, decode_base64

FORMAT = 3
READABLE = (1, 2, 3)
MARK_IN_METADATA = "agent_kernel.origin"
"""Metadata key by which older documents mark an imported session; newer documents have the field ``imported``."""
MAX_SEGMENTS = 100_000
MAX_NAME = 200


def is_own(document: Fields) -> bool:
    return document.child("agent_kernel").value is not None


def read_fields(document: Fields, namespace: str) -> Transcript:
    """Parse a document of agent-kernel. Raises InvalidRequest, also for an unknown format version."""
    own, reader = document.child("agent_kernel"), MessageReader(document)
    format = read_format(own)
    if format >= 3:
        own = Fields(expand_rows(own.value), own.place)
    messages = [reader.message(body) for body in document.each("messages")]
    reader.end()
    blobs = reader.blobs | dict(_blobs(own, messages))
    return build_transcript(own, namespace, messages, blobs, files=document.each("files"), format=format)


def read_format(own: Fields) -> int:
    format = own.get("format", int)
    if format not in READABLE:
        own.refuse(f"format {format} is not supported (only {READABLE}): another version of agent-kernel wrote this")
    return format


def build_transcript(
    own: Fields,
    namespace: str,
    messages: Sequence[Message],
    blobs: Mapping[str, bytes],
    *,
    files: Iterable[Fields],
    format: int = FORMAT,
) -> Transcript:
    """Build a transcript from the parts of a document: ``own`` (the fields that ``transcript.facts`` wrote), the
    messages, the media bytes and the files. Media that nothing refers to are dropped. Raises InvalidRequest for content
    that a session store of agent-kernel cannot contain."""
    session = _session(own.child("session"), namespace)
    bodies = list(own.each("turns"))
    turns = tuple(_turn(body, session.key) for body in bodies)
    segments = tuple(
        TreeSegment(body.count("id"), body.count("parent"), body.count("since")) for body in own.each("segments")
    )
    ends = {body.utf8("name"): body.count("segment") for body in own.each("branches")}
    placed = {turn.id: body.count("segment", 0) for turn, body in zip(turns, bodies, strict=True)}
    tree = BranchTree(segments, ends, {turn: segment for turn, segment in placed.items() if segment})
    branches = tuple(_branch(body, session) for body in own.each("branches"))
    summaries = tuple(_summary(body, session.key) for body in own.each("summaries"))
    facts = list(own.each("items"))
    if len(facts) != len(messages):
        own.refuse(f"there are {len(facts)} items but {len(messages)} messages")
    items = tuple(_item(fact, message) for fact, message in zip(facts, messages, strict=True))
    if format == 1:
        turns = _compute_since(turns, items)
    stored_files = list(mistralrs_files.read(files))
    transcript = Transcript(session, turns, items, branches, summaries, tree, tuple(file for file, _ in stored_files))
    referenced = transcript.media.keys() | {file.hash for file, _ in stored_files}
    blobs = {**blobs, **{file.hash: data for file, data in stored_files if data is not None}}
    TranscriptValidator(own, transcript).check()
    return replace(
        transcript,
        blobs={digest: data for digest, data in blobs.items() if digest in referenced},
        branches=tuple(resolve_branches(branches, tree, turns, items)),
    )


def _item(body: Fields, message: Message) -> Item:
    message = replace(message, hidden=body.get("hidden", bool, False), extra=body.get("extra", dict, {}))
    return Item(body.count("seq"), body.get("turn", str), message, body.time("time"))


def _compute_since(turns: Sequence[Turn], items: Sequence[Item]) -> tuple[Turn, ...]:
    """Return the turns with ``since``, which documents of format 1 do not always contain. The ``since`` of a turn is
    the sequence number of the last item of all earlier turns."""
    last: dict[str, int] = {}
    for stored in items:
        last[stored.turn] = max(stored.seq, last.get(stored.turn, 0))
    dated: list[Turn] = []
    head = 0
    for turn in turns:
        dated.append(replace(turn, since=head))
        head = max(head, last.get(turn.id, 0))
    return tuple(dated)


def _session(body: Fields, namespace: str) -> Session:
    metadata = body.get("metadata", dict, {})
    imported = None if body.child("imported").value is None else body.get("imported", dict)
    if "imported" not in body.value and MARK_IN_METADATA in metadata:
        mark = metadata[MARK_IN_METADATA]
        metadata = {name: value for name, value in metadata.items() if name != MARK_IN_METADATA}
        imported = mark if isinstance(mark, dict) else {}
    return Session(
        SessionKey(namespace, body.get("id", str)),
        body.get("title", str),
        body.time("created"),
        body.time("updated"),
        body.count("head"),
        body.count("revision"),
        body.count("turns"),
        body.utf8("branch", MAIN),
        tags=tuple(_tag(tag) for tag in body.each("tags")),
        metadata=metadata,
        context=body.child("context").value,
        imported=imported,
    )


def _tag(tag: Fields) -> str:
    if not isinstance(tag.value, str):
        tag.refuse("should be a text")
    return tag.value


def _branch(body: Fields, session: Session) -> Branch:
    """Read a branch. Its ``since``, ``head`` and ``turns`` are not read here; they are computed from the tree."""
    name = body.utf8("name")
    return Branch(name, body.utf8("parent", ""), created=body.time("created"), current=name == session.branch)


def _turn(body: Fields, key: SessionKey) -> Turn:
    state = body.get("state", str)
    if state not in get_args(TurnState):
        body.refuse(f"unknown state {state[:80]!r}")
    texts = {name: body.get(name, str, "") for name in ("reason", "cell", "epoch", "where", "model")}
    return Turn(
        check_id(body.get("id", str), "turn id"),
        key,
        body.count("ordinal"),
        cast(TurnState, state),
        **texts,
        opened=body.time("opened"),
        closed=None if body.child("closed").value is None else body.time("closed"),
        usage=_usage(body),
        record=body.get("record", dict, {}),
        since=body.count("since", 0),
    )


def _summary(body: Fields, key: SessionKey) -> Summary:
    return Summary(
        key,
        body.count("last"),
        body.utf8("text"),
        body.utf8("model", ""),
        _usage(body),
        body.utf8("reason", ""),
        time=body.time("time"),
    )


def _usage(body: Fields) -> dict[str, float]:
    return {name: _number(value) for name, value in body.items("usage")}


def _number(field: Fields) -> float:
    """Return the number in a field of a turn's usage. A boolean is accepted too, because ``estimated`` is true or
    absent. Raises InvalidRequest for any other value and for a number that is too large."""
    if type(field.value) not in (int, float, bool):
        field.refuse("should be a number")
    if abs(field.value) > 1e15:
        field.refuse("is too large a number")
    return cast(float, field.value)


def _blobs(own: Fields, messages: Sequence[Message]) -> Iterator[tuple[str, bytes]]:
    """Yield (hash, bytes) of media, except PNG images, that a message refers to and whose bytes are in the document."""
    media = {medium.hash: medium for message in messages for medium in message.media}
    for digest, body in own.items("blobs"):
        if digest in media and body.child("data").value is not None:
            yield digest, verified_bytes(body, media[digest])


def verified_bytes(body: Fields, medium: Media) -> bytes:
    data = decode_base64(body.child("data"))
    if hashlib.sha256(data).hexdigest() != medium.hash or len(data) != medium.size:
        body.refuse("the bytes do not match their hash and size")
    return data


# Checks that a transcript could have been read from a store: numbers, order, the branch tree, and calls with their
# results.


class TranscriptValidator:
    """Checks one transcript. Error messages name the document ``place``. The time is linear in the size of the
    transcript, whatever the shape of its branch tree."""

    def __init__(self, place: Fields, transcript: Transcript) -> None:
        self._place = place
        self._whole = transcript
        self._by_id: dict[str, Turn] = {turn.id: turn for turn in transcript.turns}
        self._items: dict[int, list[Item]] = {}

    def check(self) -> None:
        """Check the whole transcript. Raises InvalidRequest for the first problem that is found."""
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
