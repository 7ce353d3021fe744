"""Tests what is counted of a turn's events, on a clock that the test sets."""

from __future__ import annotations

import pytest

from agent_kernel.core.events import (
    CallFinished,
    CallStarted,
    ContextBuilt,
    EventBody,
    ModelLoading,
    Queued,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.monitoring.metrics import Metrics
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.turns import LiveTurn, TurnSpec

USAGE = {"prompt_tokens": 10, "completion_tokens": 6, "reused_tokens": 4}


class Told:
    """A turn whose events are announced at times that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.metrics = Metrics(clock=lambda: self.now)
        order = TurnSpec(SessionKey("local", "s"), TurnRequest("hi"), route="messages")
        self.turn = LiveTurn("t", order, EventLog("t", "s"), on_body=self.metrics.on_turn_body)

    def at(self, now: float, *bodies: EventBody) -> None:
        self.now = now
        for body in bodies:
            self.turn.announce(body)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"agent_kernel_{name}", labels) or 0.0


@pytest.fixture
async def told() -> Told:
    return Told()


async def test_waiting_is_what_lies_between_a_place_in_a_line_and_what_comes_next(told: Told) -> None:
    told.at(0, Queued(2, "others"))  # before anybody says that it began
    told.metrics.on_turn_begin(told.turn)
    told.at(3, Queued(1, "others"))
    told.at(5, TurnStarted("m", True, "sandbox"), ContextBuilt(1, 0))
    told.at(6, Queued(1, "the engine"))
    told.at(7, TextDelta("a"))
    told.at(9, TurnFinished("committed", "", 0, {}))
    told.metrics.on_turn_end(told.turn)
    assert told.value("turn_wait_seconds_sum") == 6
    assert told.value("time_to_first_token_seconds_sum") == 7
    assert told.value("turn_seconds_sum") == 9
    assert told.value("turns_total", state="committed", route="messages") == 1


async def test_the_time_between_tokens_leaves_out_tools_and_waits(told: Told) -> None:
    told.metrics.on_turn_begin(told.turn)
    told.at(1, ContextBuilt(1, 0), TextDelta("a"))
    told.at(2, TextDelta("b"))
    told.at(3, TextDelta("c"))
    told.at(50, ContextBuilt(3, 0), TextDelta("d"))
    told.at(52, TextDelta("e"))
    told.at(60, TurnFinished("committed", "", 1, USAGE))
    assert told.value("inter_token_seconds_sum") == 4 / (6 - 2)
    assert [told.value("tokens_total", kind=kind) for kind in ("prompt", "completion", "reused")] == [10, 6, 4]


async def test_what_the_engine_says_of_its_decoding_counts_more(told: Told) -> None:
    told.metrics.on_turn_begin(told.turn)
    told.at(1, ContextBuilt(1, 0), TextDelta("a"))
    told.at(9, TextDelta("b"), TurnFinished("committed", "", 0, {**USAGE, "decode_s": 2.5}))
    assert told.value("inter_token_seconds_sum") == 0.5


async def test_an_end_that_is_told_twice_and_an_unknown_outcome_are_no_trouble(told: Told) -> None:
    told.metrics.on_turn_begin(told.turn)
    told.at(1, ModelLoading("m", "loading", 0.5), CallStarted("c", "whatever", {}, "server"))
    told.at(2, CallFinished("c", "whatever", "exploded", "", 0.5))
    told.at(3, TurnFinished("cancelled", "", 1, USAGE), TurnFinished("cancelled", "", 1, USAGE))
    told.metrics.on_turn_end(told.turn)
    told.at(4, TextDelta("late"))
    assert told.value("tokens_total", kind="prompt") == 10
    assert told.value("tool_calls_total", kind="unknown", outcome="other") == 1
    assert told.value("turns_total", state="cancelled", route="messages") == 1
    assert not told.metrics._turns
