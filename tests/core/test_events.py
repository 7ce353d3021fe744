import pytest

from agent_kernel.core.events import EVENT_TYPES, ContextBuilt, Event, EventNumbering, TextDelta, TurnFinished


def test_event_names_are_these_and_stay_these() -> None:
    assert sorted(EVENT_TYPES) == [
        "answer.checked",
        "answer.logprobs",
        "approval.required",
        "approval.resolved",
        "call.claimed",
        "call.finished",
        "call.offered",
        "call.output",
        "call.returned",
        "call.started",
        "context",
        "file.produced",
        "model.loading",
        "notice",
        "queued",
        "reasoning.delta",
        "state.lost",
        "text.delta",
        "turn.finished",
        "turn.started",
        "turn.version",
    ]


def test_an_event_survives_the_wire() -> None:
    event = Event(3, "t", "s", 1, 12.5, TurnFinished("committed", "", 1, {"prompt_tokens": 3}))
    assert Event.from_json(event.to_json()) == event


def test_an_older_client_ignores_fields_it_does_not_know() -> None:
    wire = Event(1, "t", "s", 0, 0.0, TextDelta("hi")).to_json()
    wire["data"]["colour"] = "blue"
    assert Event.from_json(wire).body == TextDelta("hi")


def test_an_unknown_type_is_an_error_and_not_a_guess() -> None:
    wire = Event(1, "t", "s", 0, 0.0, TextDelta("hi")).to_json() | {"type": "from.the.future"}
    with pytest.raises(KeyError):
        Event.from_json(wire)


def test_stamps_count_events_from_one_and_rounds_by_model_calls() -> None:
    stamp = EventNumbering("t", "s", clock=lambda: 1.0)
    events = [stamp(body) for body in (TextDelta("a"), ContextBuilt(1, 0), TextDelta("b"), ContextBuilt(2, 0))]
    assert [(event.seq, event.round) for event in events] == [(1, 0), (2, 1), (3, 1), (4, 2)]
