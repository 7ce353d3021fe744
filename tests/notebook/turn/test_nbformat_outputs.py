"""Tests the outputs of a turn that no kernel displays."""

from __future__ import annotations

import pytest

from agent_kernel.core.events import CallFinished, CallStarted, Event, EventBody, TextDelta, TurnFinished
from agent_kernel.notebook.display.render import TurnSummary
from agent_kernel.notebook.turn.nbformat_outputs import render_outputs


def events(*bodies: EventBody) -> list[Event]:
    return [Event(number, "turn", "session", 1, 0.0, body) for number, body in enumerate(bodies, 1)]


@pytest.mark.parametrize("where", ["sandbox", "draft", "live"])
def test_code_is_shown_as_it_was_stored_wherever_it_ran(where: str) -> None:
    turn = events(
        CallStarted("c", "python", {"code": "6 * 7"}, where),
        CallFinished("c", "python", "success", "42", 0.1),
        TextDelta("It is 42."),
        TurnFinished("committed", "", 1, {}),
    )
    call, answer, _ = render_outputs(turn, TurnSummary("turn", "session"), "http://127.0.0.1:8888/")
    assert ">>> 6 * 7\n42" in call["data"]["text/plain"]
    assert answer["data"]["text/plain"] == "It is 42."
