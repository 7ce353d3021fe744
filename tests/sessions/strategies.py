"""Random messages, rounds and sessions, in the form in which a store gives them back."""

from __future__ import annotations

import hashlib
from typing import get_args

from hypothesis import strategies as st

from agent_kernel.events import TurnState
from agent_kernel.messages import Media, Message, Part, Role, Status, Text, ToolCall
from agent_kernel.sessions import pairs
from agent_kernel.sessions.model import Item, Session, SessionKey, Turn
from agent_kernel.sessions.transcript import Transcript

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
    """Canonical: no empty text, and no two texts unless a medium is among the parts."""
    said: list[Part] = [Text(text) for text in draw(st.lists(texts.filter(bool), max_size=3))]
    pictures = draw(st.lists(shown, max_size=2))
    if not pictures:
        return tuple(said[:1])
    return tuple(draw(st.permutations([*said, *pictures])))


@st.composite
def rounds(draw: st.DrawFn, shown: st.SearchStrategy[Media] = media) -> list[Message]:
    """One message, or an assistant's calls with some or all of their results."""
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
        said += [*pairs.answers(pairs.unanswered({}, said), "cut short"), *batch]
    if state != "open":
        said += pairs.answers(pairs.unanswered({}, said), "closed")
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
    key = SessionKey(draw(ids), draw(ids))
    count = draw(st.integers(0, 3))
    drawn = [draw(turns(key, ordinal, ordinal == count)) for ordinal in range(1, count + 1)]
    said = [(turn, message) for turn, batch in drawn for message in batch]
    items = tuple(Item(seq, turn.id, message, draw(times)) for seq, (turn, message) in enumerate(said, start=1))
    session = Session(key, draw(texts), draw(times), draw(times), len(items), draw(st.integers(0, 99)), count)
    return Transcript(session, tuple(turn for turn, _ in drawn), items, blobs_of([message for _, message in said]))


def blobs_of(said: list[Message]) -> dict[str, bytes]:
    blobs = {medium.hash: medium.data or b"" for message in said for medium in message.media}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    return blobs
