"""Tests that a follower reads a turn across lost connections and from its stored items: no event comes twice, and none
is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import (
    AgentKernelError,
    Conflict,
    Forbidden,
    NotFound,
    ServerUnreachable,
    TokenInvalid,
    Unauthenticated,
)
from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    CallStarted,
    Event,
    EventBody,
    FileProduced,
    Notice,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.wire.server_sent_events import ServerEvent
from agent_kernel.core.wire.turn_follower import TurnFollower

END = TurnFinished("interrupted", "", 1, {})
LIVE: list[EventBody] = [
    TurnStarted("m", True, "sandbox"),
    ReasoningDelta("thi"),
    ReasoningDelta("nk"),
    TextDelta("Be"),
    TextDelta("fore"),
    CallStarted("c1", "python", {}, "sandbox"),
    CallOutput("c1", "out"),
    FileProduced("c1", {"id": "f1"}),
    CallFinished("c1", "python", "success", "out", 0.1),
    TextDelta("Af"),
    TextDelta("ter"),
    END,
]
STORED: list[EventBody] = [
    TurnStarted("m", True, "sandbox"),
    ReasoningDelta("think"),
    TextDelta("Before"),
    CallStarted("c1", "python", {}, "sandbox"),
    FileProduced("c1", {"id": "f1"}),
    CallFinished("c1", "python", "success", "out", 0.1),
    TextDelta("After"),
    END,
]


def summarize(bodies: list[EventBody]) -> tuple[str, str, list[EventBody]]:
    text = "".join(body.text for body in bodies if isinstance(body, TextDelta))
    reasoning = "".join(body.text for body in bodies if isinstance(body, ReasoningDelta))
    return text, reasoning, [body for body in bodies if not isinstance(body, TextDelta | ReasoningDelta | CallOutput)]


def follower(session: str = "", *, after: int = 0, stored: bool = False, relays: bool = False) -> TurnFollower:
    def pauses() -> Iterator[float]:
        return iter((0.1, 0.2))

    return TurnFollower("t/1", session, pauses=pauses, after=after, stored=stored, relays=relays)


def read(follower: TurnFollower, bodies: list[EventBody], first: int = 1) -> list[Event]:
    """Read a stream whose numbers begin at ``first``."""
    events = [Event(number, "t/1", "s", 1, 0.0, body) for number, body in enumerate(bodies, first)]
    sent = [ServerEvent(str(event.seq), event.body.type, json.dumps(event.to_json())) for event in events]
    return [event for one in sent if (event := follower.accept(one))]


def bodies_of(events: list[Event]) -> list[EventBody]:
    return [event.body for event in events]


def read_stored(follower: TurnFollower, bodies: list[EventBody]) -> list[EventBody]:
    """Read the stored items. The server announces them to a client that asked for the rest of the event log."""
    if not follower.begin(from_store=True):
        assert "after" not in follower.query
        assert follower.begin(from_store=True)
    return bodies_of(read(follower, bodies))


@given(st.integers(1, len(LIVE) - 1))
def test_wherever_the_log_was_lost_the_stored_items_give_the_rest_once(after: int) -> None:
    reader = follower()
    bodies = bodies_of(read(reader, LIVE[:after]))
    assert reader.pause_after(ServerUnreachable("lost")) == 0.1
    assert reader.query == {"after": str(after)}
    rest = read_stored(reader, STORED)
    assert summarize([*bodies, *rest]) == summarize(bodies_of(read(follower(), LIVE)))
    assert reader.finished


@given(st.integers(1, len(LIVE) - 1), st.integers(0, len(STORED) - 1))
def test_stored_items_whose_stream_broke_too_are_read_on(after: int, cut: int) -> None:
    reader = follower()
    bodies = bodies_of(read(reader, LIVE[:after]))
    bodies += read_stored(reader, STORED[:cut])
    assert summarize([*bodies, *read_stored(reader, STORED)]) == summarize(bodies_of(read(follower(), LIVE)))


def test_events_from_stored_items_are_numbered_on() -> None:
    reader = follower()
    read(reader, LIVE[:5], first=3)
    assert not reader.begin(from_store=True)
    assert reader.begin(from_store=True)
    assert [event.seq for event in read(reader, STORED)] == [8, 9, 10, 11, 12]


def test_more_than_was_stored_is_not_taken_back() -> None:
    """What was streamed in the last moments before a power cut may not be on the disk."""
    reader = follower()
    read(reader, [TextDelta("Before and more")])
    assert [body for body in read_stored(reader, STORED) if isinstance(body, TextDelta)] == []


def test_a_notice_of_the_stored_turn_is_an_event() -> None:
    reader = follower(after=1)
    assert read_stored(reader, [Notice("info", "x")]) == [Notice("info", "x")]


def test_a_stored_turn_that_is_read_from_the_beginning_keeps_its_numbers() -> None:
    reader = follower("s", stored=True)
    assert reader.query == {"session": "s", "stored": "1"}
    assert reader.begin(from_store=True)
    assert [event.seq for event in read(reader, STORED)] == list(range(1, len(STORED) + 1))


def test_a_relay_passes_on_what_the_server_sends_to_its_position() -> None:
    """The reader behind a relay has received more than the relay, which cannot match contents."""
    reader = follower(after=5, relays=True)
    assert reader.begin(from_store=True)
    assert [event.seq for event in read(reader, [Notice("info", "gone"), END], first=6)] == [6, 7]


def test_an_event_that_was_received_or_is_not_known_is_none() -> None:
    reader = follower(after=2)
    assert read(reader, [TextDelta("a"), TextDelta("b"), TextDelta("c")], first=1)[0].body == TextDelta("c")
    assert reader.accept(ServerEvent("9", "of.a.newer.server", "{}")) is None
    assert reader.query == {"after": "9"}


def test_pauses_begin_anew_once_an_event_has_come() -> None:
    reader, lost = follower(), ServerUnreachable("lost")
    assert [reader.pause_after(lost), reader.pause_after(lost)] == [0.1, 0.2]
    read(reader, [TextDelta("a")])
    assert [reader.pause_after(lost), reader.pause_after(lost)] == [0.1, 0.2]
    with pytest.raises(ServerUnreachable, match="lost"):
        reader.pause_after(lost)


@pytest.mark.parametrize("error", [NotFound("no"), Forbidden("no"), TokenInvalid("no"), Conflict("no")])
def test_a_refusal_of_the_first_stream_is_that_refusal(error: AgentKernelError) -> None:
    for reader in (follower(), follower(after=3, relays=True)):
        with pytest.raises(type(error)) as caught:
            reader.pause_after(error)
        assert caught.value is error


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (NotFound("no", hint="Look elsewhere."), "Ask again."),
        (Unauthenticated("no", hint="Restart the kernel."), "Restart the kernel. Ask again."),
    ],
)
def test_a_turn_that_the_server_does_not_know_any_more_was_interrupted(error: AgentKernelError, hint: str) -> None:
    error.request_id = "r1"
    lost = follower(relays=True)
    lost.pause_after(ServerUnreachable("lost"))
    for reader in (lost, follower(after=3)):
        with pytest.raises(ServerUnreachable, match="was restarted") as caught:
            reader.pause_after(error)
        assert (caught.value.hint, caught.value.request_id) == (hint, "r1")
