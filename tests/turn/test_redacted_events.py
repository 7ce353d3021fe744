"""Tests what followers of a turn see: no key, wherever a delta ends; everything else, in order and as early as
possible.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.events import (
    CallFinished,
    CallOffered,
    CallOutput,
    CallStarted,
    EventBody,
    Notice,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.turn.redacted_events import RedactedEvents
from tests.sessions.redaction.test_redaction import INSIDE, SECRETS

REDACTOR = Redactor()
END = TurnFinished("committed", "", 0, {})
HIDDEN = {**SECRETS, **{label: secret for label, (_, secret, _) in INSIDE.items()}}
TEXTS = {
    **{label: f"Here is {secret} and more." for label, secret in SECRETS.items()},
    **{label: f"so: {''.join(parts)} and more." for label, parts in INSIDE.items()},
}


def redact(*bodies: EventBody) -> list[EventBody]:
    seen: list[EventBody] = []
    emit = RedactedEvents(REDACTOR, seen.append)
    for body in bodies:
        emit(body)
    return seen


def joined_text(bodies: list[EventBody]) -> str:
    return "".join(body.text for body in bodies if isinstance(body, TextDelta | ReasoningDelta | CallOutput))


def pieces(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("label", TEXTS)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_key_that_comes_in_pieces_is_not_seen(label: str, size: int) -> None:
    text = TEXTS[label]
    seen = joined_text(redact(*(TextDelta(text[at : at + size]) for at in range(0, len(text), size)), END))
    assert HIDDEN[label][4:] not in seen
    assert "[REDACTED:" in seen
    assert seen.endswith("and more.")


@given(st.text("sk-hf_AKIeyJ.:/@ abc\n", max_size=80), st.lists(st.integers(0, 80), max_size=6))
def test_what_is_no_key_is_seen_in_full(text: str, cuts: list[int]) -> None:
    if REDACTOR.text(text) == text:
        assert joined_text(redact(*map(TextDelta, pieces(text, cuts)), END)) == text


def test_harmless_text_does_not_wait() -> None:
    assert redact(TextDelta("Yes"), TextDelta(", it is this")) == [TextDelta("Yes"), TextDelta(", it is this")]


def test_what_waits_comes_before_the_next_event_of_another_kind() -> None:
    seen = redact(ReasoningDelta("use sk-abcd"), TextDelta("Bearer"), Notice("info", "x"))
    assert seen == [
        ReasoningDelta("use "),
        ReasoningDelta("sk-abcd"),
        TextDelta("Bearer"),
        Notice("info", "x"),
    ]


def test_the_details_of_a_notice_have_no_keys() -> None:
    key = SECRETS["github_token"]
    assert redact(Notice("info", "x", f"got {key}")) == [Notice("info", "x", "got [REDACTED:github_token]")]


def test_outputs_of_calls_that_run_at_once_are_told_apart() -> None:
    key = SECRETS["github_token"]
    seen = redact(
        CallOutput("a", key[:12]),
        CallOutput("b", "hello"),
        CallOutput("a", key[12:] + " "),
        CallFinished("b", "python", "success", "hello", 0.1),
        CallFinished("a", "python", "success", f"got {key}", 0.1),
    )
    assert key[4:] not in str(seen)
    assert [body.text for body in seen if isinstance(body, CallOutput) and body.call == "b"] == ["hello"]
    assert seen[-1] == CallFinished("a", "python", "success", "got [REDACTED:github_token]", 0.1)


def test_code_that_a_client_runs_is_told_as_it_is_and_shown_without_the_key() -> None:
    key = SECRETS["openai_key"]
    started, offered = redact(
        CallStarted("c", "python", {"code": key}, "live"), CallOffered("c", "python", {"code": key})
    )
    assert started == CallStarted("c", "python", {"code": "[REDACTED:openai_key]"}, "live")
    assert offered == CallOffered("c", "python", {"code": key})


def test_the_error_of_a_turn_is_clean() -> None:
    key = SECRETS["openai_key"]
    failed = TurnFinished("failed", f"refused {key}", 0, {}, {"code": "engine_error", "message": f"bad key {key}"})
    assert key not in str(redact(failed))


def test_with_redaction_off_every_event_is_passed_on() -> None:
    seen: list[EventBody] = []
    RedactedEvents(Redactor.off(), seen.append)(TextDelta(SECRETS["openai_key"]))
    assert seen == [TextDelta(SECRETS["openai_key"])]
