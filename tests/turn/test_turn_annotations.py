"""Tests the annotations of a turn: small, clean, and in their place when the turn is shown again."""

from __future__ import annotations

import json

from agent_kernel.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallStarted,
    ContextBuilt,
    EventBody,
    Notice,
    StateLost,
    TextDelta,
)
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.stored_annotations import ANNOTATIONS, StoredAnnotations
from agent_kernel.turn.turn_annotations import MAX_CALLS, MAX_DETAILS, MAX_NOTICES, TurnAnnotations

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def annotate(*bodies: EventBody, redactor: Redactor | None = None) -> StoredAnnotations:
    """Return the annotations as a store returns them."""
    asides = TurnAnnotations(redactor)
    for body in bodies:
        asides.note(body)
    return StoredAnnotations(json.loads(json.dumps(asides.record)))


def call(id: str, seconds: float, **told: object) -> list[EventBody]:
    return [
        CallStarted(id, "python", {}, "sandbox"),
        CallFinished(id, "python", "success", "", seconds, details=dict(told)),
    ]


def test_a_turn_that_told_nothing_keeps_nothing() -> None:
    assert TurnAnnotations().record == {}
    kept = StoredAnnotations({})
    assert (kept.peek("c"), kept.take("c"), kept.notices(), kept.context) == ({}, {}, [], {})


def test_ids_that_come_again_in_a_later_round_are_other_calls() -> None:
    kept = annotate(*call("c1", 1.0), TextDelta("Again."), *call("c1", 2.0))
    assert [kept.take("c1").get("seconds") for _ in range(3)] == [1.0, 2.0, None]


def test_notices_stand_before_the_block_that_followed_them() -> None:
    kept = annotate(
        Notice("info", "first"), TextDelta("a"), TextDelta("b"), Notice("warning", "cut"), StateLost("gone")
    )
    assert kept.notices(0) == [("info", "first", "")]
    assert kept.notices(0) == []
    assert kept.notices() == [("warning", "cut", ""), ("lost", "gone", "")]


def test_the_last_context_is_kept_and_what_a_person_decided() -> None:
    asked = ApprovalRequired("a1", "c1", "python", "python.live", "k", "secret()", {"code": "secret()"}, shown="hash")
    kept = annotate(
        ContextBuilt(3, 0),
        ContextBuilt(5, 2, 1, True),
        CallStarted("c1", "python", {}, "live"),
        asked,
        ApprovalResolved("a1", "c1", "deny", "not now"),
        CallFinished("c1", "python", "denied", "", 4.0),
    )
    assert kept.context == {"messages": 5, "dropped": 2, "shortened": 1, "summary": True}
    decided = kept.take("c1")["approval"]
    assert (decided["kind"], decided["decision"], decided["reason"]) == ("python.live", "deny", "not now")
    assert "secret" not in str(decided)


def test_the_details_of_a_notice_are_kept() -> None:
    assert annotate(Notice("info", "5 of 8 programs that were tried have this result.", "7\n8")).notices() == [
        ("info", "5 of 8 programs that were tried have this result.", "7\n8")
    ]


def test_keys_and_passwords_are_not_kept() -> None:
    asides = TurnAnnotations(Redactor())
    told = {"token": KEY, "lines": [f"key {KEY}"]}
    for body in (*call("c1", 0.1, **told), Notice("info", f"with {KEY}", f"and\n{KEY}")):
        asides.note(body)
    assert KEY not in json.dumps(asides.record)


def test_it_stays_small_whatever_a_turn_tells() -> None:
    asides = TurnAnnotations()
    for number in range(3 * MAX_CALLS):
        for body in (*call(f"c{number}", 0.1, rows=["x" * 2 * MAX_DETAILS]), Notice("info", "x" * 10_000)):
            asides.note(body)
    kept = asides.record[ANNOTATIONS]
    assert (len(kept["calls"]), len(kept["notices"])) == (MAX_CALLS, MAX_NOTICES)
    assert len(json.dumps(kept)) < 300_000


def test_what_a_newer_release_tells_of_the_context_is_passed_over() -> None:
    kept = StoredAnnotations({ANNOTATIONS: {"context": {"messages": 3, "dropped": 0, "colour": "red"}}})
    assert ContextBuilt(**kept.context) == ContextBuilt(3, 0)
