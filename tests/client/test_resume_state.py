"""A turn that was told in part, and then again from what is stored of it: nothing is said twice, nothing is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.client.resume_state import ResumeState
from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    CallStarted,
    EventBody,
    FileProduced,
    Notice,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)

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


def told(bodies: list[EventBody]) -> tuple[str, str, list[EventBody]]:
    text = "".join(body.text for body in bodies if isinstance(body, TextDelta))
    reasoning = "".join(body.text for body in bodies if isinstance(body, ReasoningDelta))
    return text, reasoning, [body for body in bodies if not isinstance(body, TextDelta | ReasoningDelta | CallOutput)]


@given(st.integers(0, len(LIVE)))
def test_wherever_it_broke_the_whole_is_told_once(after: int) -> None:
    received = ResumeState()
    for body in LIVE[:after]:
        received.add(body)
    rest = list(received.rest(STORED))
    assert told(LIVE[:after] + rest) == told(LIVE)


def test_more_than_was_stored_is_not_taken_back() -> None:
    """What was streamed in the last moments before a power cut may not be on the disk."""
    received = ResumeState()
    received.add(TextDelta("Before and more"))
    assert [body for body in received.rest(STORED) if isinstance(body, TextDelta)] == []


def test_a_notice_is_told() -> None:
    assert list(ResumeState().rest([Notice("info", "x")])) == [Notice("info", "x")]
