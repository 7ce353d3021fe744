"""Random messages, rounds and sessions, in the form in which a store returns them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from agent_kernel.core.events import TurnState
from agent_kernel.core.messages import Media, Message, Part, Role, Status, Text, ToolCall
from agent_kernel.core.session import Branch, Item, Session, SessionKey, Summary, Turn
from agent_kernel.core.session_tree import BranchTree, Transcript, TreeSegment, resolve_branches
from agent_kernel.sessions import call_pairs

texts = st.text(st.characters(codec=None), max_size=20)  # lone surrogates too: models and terminals produce them
ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
times = st.floats(min_value=0, max_value=4e9)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
media = st.builds(
    Media.of,
    st.sampled_from(["image/png", "image/jpeg", "text/html"]),
    st.binary(max_size=40) | st.sampled_from([4, 300_000]).map(bytes),
)


@st.composite
def parts(draw: st.DrawFn, shown: st.SearchStrategy[Media] = media) -> tuple[Part, ...]:
    """Draw parts in canonical form: no empty text, and no two texts unless there is a medium among the parts."""
    said: list[Part] = [Text(text) for text in draw(st.lists(texts.filter(bool), max_size=3))]
    pictures = draw(st.lists(shown, max_size=2))
    if not pictures:
        return tuple(said[:1])
    return tuple(draw(st.permutations([*said, *pictures])))


@st.composite
def rounds(draw: st.DrawFn, shown: st.SearchStrategy[Media] = media) -> list[Message]:
    """Draw one message, or an assistant's calls with some or all of their results."""
    role: Role = draw(st.sampled_from(get_args(Role)))
    if role != "tool":
        return [
            Message(role, draw(parts(shown)), hidden=draw(st.booleans()), name=draw(st.none() | texts.filter(bool)))
        ]
    names = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    calls = tuple(ToolCall(id, draw(ids), draw(st.dictionaries(texts, json_values, max_size=3))) for id in names)
    cut: Status | None = draw(st.sampled_from([None, "interrupted"]))
    asked = Message("assistant", draw(parts(shown)), calls, reasoning=draw(texts), status=cut)
    answered = draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
    return [asked, *[_result(draw, call, shown) for call in answered]]


def _result(draw: st.DrawFn, call: ToolCall, shown: st.SearchStrategy[Media]) -> Message:
    status: Status = draw(st.sampled_from(get_args(Status)))
    return Message("tool", draw(parts(shown)), call_id=call.id, name=call.name, status=status)


messages = rounds().map(lambda batch: batch[0])


@st.composite
def turns(draw: st.DrawFn, key: SessionKey, ordinal: int, last: bool) -> tuple[Turn, list[Message]]:
    states = [state for state in get_args(TurnState) if last or state != "open"]
    state: TurnState = draw(st.sampled_from(states))
    said: list[Message] = []
    for batch in draw(st.lists(rounds(), max_size=4)):
        said += [*call_pairs.interrupted_results(call_pairs.pending_calls({}, said), "cut short"), *batch]
    if state != "open":
        said += call_pairs.interrupted_results(call_pairs.pending_calls({}, said), "closed")
    turn = Turn(
        f"{draw(ids)}-{ordinal}",
        key,
        ordinal,
        state,
        reason=draw(texts),
        cell=draw(texts),
        epoch=draw(texts),
        where=draw(texts),
        model=draw(texts),
        opened=draw(times),
        closed=None if state == "open" else draw(times),
        usage={"prompt_tokens": draw(st.integers(0, 9)), "seconds": draw(times)},
        record=draw(st.dictionaries(texts, json_values, max_size=2)),
    )
    return turn, said


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Draw a tree of turns, with gaps where items were undone; sometimes one line without branches."""
    key = SessionKey(draw(ids), draw(ids))
    grown = _Grown(key, draw)
    for _ in range(draw(st.integers(0, 4))):
        grown.turn()
    return grown.transcript()


class _Grown:
    """A session that is drawn turn by turn. ``ends`` are the places (segment, seq) where a branch may begin, also in
    the middle of a turn.
    """

    def __init__(self, key: SessionKey, draw: st.DrawFn) -> None:
        self._key = key
        self._draw = draw
        self._branching = draw(st.booleans())
        self._segments = [TreeSegment(0, 0, 0)]
        self._ends = [(0, 0)]
        self._turns: list[Turn] = []
        self._places: dict[str, int] = {}
        self._items: list[Item] = []
        self._said: list[Message] = []
        self._head = self._ordinal = 0

    def turn(self) -> None:
        draw = self._draw
        if self._turns and self._turns[-1].state == "open":
            return
        if self._branching and draw(st.booleans()):
            self._segments.append(TreeSegment(len(self._segments), *draw(st.sampled_from(self._ends))))
            self._ends.append((self._segments[-1].id, self._segments[-1].since))
        at = draw(st.sampled_from(self._segments)).id
        self._ordinal += draw(st.integers(1, 2))
        turn, said = draw(turns(self._key, self._ordinal, last=True))
        self._turns.append(replace(turn, since=self._head))
        self._places |= {turn.id: at} if at else {}
        waiting: dict[str, str] = {}
        for message in said:
            self._head += draw(st.integers(1, 2))
            self._items.append(Item(self._head, turn.id, message, draw(times)))
            waiting = call_pairs.pending_calls(waiting, [message])
            if not waiting and turn.state != "open":
                self._ends.append((at, self._head))
        self._said += said

    def transcript(self) -> Transcript:
        draw = self._draw
        ends = {"main" if segment.id == 0 else f"branch {segment.id}": segment.id for segment in self._segments}
        current = draw(st.sampled_from(sorted(ends))) if self._branching else "main"
        session = Session(
            self._key,
            draw(texts),
            draw(times),
            draw(times),
            self._head + draw(st.integers(0, 1)),
            draw(st.integers(0, 99)),
            self._ordinal,
            current,
            tags=tuple(draw(st.lists(ids, max_size=2))),
            metadata=draw(st.dictionaries(texts, json_values, max_size=2)),
            context=draw(json_values),
            imported=draw(st.none() | st.dictionaries(texts, json_values, max_size=3)),
        )
        whole = Transcript(session, tuple(self._turns), tuple(self._items), blobs=blobs_of(self._said))
        if not self._branching:
            return whole
        tree = BranchTree(tuple(self._segments[1:]), ends, self._places)
        branches = [Branch(name, created=float(at), current=name == current) for name, at in ends.items()]
        told = [Summary(self._key, item.seq, "so far", time=1.0) for item in self._items[:1]]
        known = tuple(resolve_branches(branches, tree, whole.turns, whole.items))
        return replace(whole, branches=known, summaries=tuple(told), tree=tree)


def blobs_of(said: list[Message]) -> dict[str, bytes]:
    blobs = {medium.hash: medium.data or b"" for message in said for medium in message.media}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    return blobs
