from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from agent_kernel.core.events import CallOutput, EventBody, Notice, ReasoningDelta, TextDelta
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.turn.redacted_events import JoinedDeltas, RedactedEvents

END = Notice("info", "end")


async def test_the_first_delta_goes_out_at_once_and_those_that_follow_are_joined() -> None:
    shown: list[EventBody] = []
    with JoinedDeltas(shown.append, 20) as emit:
        for char in "abc":
            emit(TextDelta(char))
        assert shown == [TextDelta("a")]
        emit(END)
    assert shown == [TextDelta("a"), TextDelta("bc"), END]


async def test_a_delta_that_nothing_follows_is_passed_on_by_the_clock() -> None:
    shown: asyncio.Queue[EventBody] = asyncio.Queue()
    with JoinedDeltas(shown.put_nowait, 200) as emit:
        emit(TextDelta("a"))
        emit(TextDelta("b"))
        assert [await asyncio.wait_for(shown.get(), 10) for _ in "ab"] == [TextDelta("a"), TextDelta("b")]


async def test_what_is_still_held_is_passed_on_at_the_end_even_after_an_error() -> None:
    shown: list[EventBody] = []

    def fail() -> None:
        with JoinedDeltas(shown.append, 0.01) as emit:
            emit(TextDelta("a"))
            emit(TextDelta("b"))
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        fail()
    assert shown == [TextDelta("a"), TextDelta("b")]


async def test_a_turn_has_at_most_twenty_deltas_a_second() -> None:
    shown: list[EventBody] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    with JoinedDeltas(shown.append, 20) as emit:
        for _ in range(300):
            emit(TextDelta("x"))
            await asyncio.sleep(0.001)
    assert "".join(body.text for body in shown if isinstance(body, TextDelta)) == "x" * 300
    assert len(shown) <= 20 * (loop.time() - began) + 3


async def test_without_a_rate_each_delta_stays_as_it_is() -> None:
    shown: list[EventBody] = []
    with JoinedDeltas(shown.append) as emit:
        for char in "abc":
            emit(TextDelta(char))
    assert shown == [TextDelta("a"), TextDelta("b"), TextDelta("c")]


async def test_a_delta_around_the_time_that_is_due_takes_the_held_ones_along() -> None:
    shown: list[EventBody] = []
    clock = asyncio.get_running_loop().time()
    # The schedule: at once, then from 10 to 15 s, then from 20 to 25 s.
    with JoinedDeltas(shown.append, 0.1) as emit, patch.object(asyncio.get_running_loop(), "time") as time:
        for second in (0, 3, 9, 11, 13, 19, 21):
            time.return_value = clock + second
            emit(TextDelta(f"{second} "))
        assert shown == [TextDelta("0 "), TextDelta("3 9 11 "), TextDelta("13 19 21 ")]


async def test_output_of_two_streams_and_reasoning_beside_text_keep_their_order() -> None:
    shown: list[EventBody] = []
    bodies: list[EventBody] = [
        CallOutput("c", "1"),
        CallOutput("c", "2"),
        CallOutput("c", "!", "stderr"),
        CallOutput("c", "3"),
        ReasoningDelta("why"),
        TextDelta("so"),
    ]
    with JoinedDeltas(shown.append, 0.01) as emit:
        for body in bodies:
            emit(body)
    assert shown == bodies


async def test_a_secret_in_joined_deltas_is_removed() -> None:
    secret = "sk-ant-" + "a1B2" * 8
    shown: list[EventBody] = []
    with JoinedDeltas(RedactedEvents(Redactor(), shown.append), 0.01) as emit:
        for char in f"The key is {secret}, keep it.":
            emit(TextDelta(char))
        emit(END)
    text = "".join(body.text for body in shown if isinstance(body, TextDelta))
    assert text == "The key is [REDACTED:anthropic_key], keep it."
