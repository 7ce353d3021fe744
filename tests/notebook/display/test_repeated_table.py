"""Tests the answers that repeat a table, with the answers that the local engine writes."""

from __future__ import annotations

import base64

import pandas as pd
import pytest

from agent_kernel.core.events import CallFinished, CallStarted, Event, EventBody, TextDelta, TurnFinished
from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import MAX_ROWS, format_rows, rows_of
from agent_kernel.notebook.display.media_bundle import BUNDLE, bundle_medium
from agent_kernel.notebook.display.render import TurnSummary
from agent_kernel.notebook.display.screen import ABOVE, repeats_table
from agent_kernel.notebook.turn.nbformat_outputs import Output, render_outputs

RAIN = pd.DataFrame({"month": range(1, 13), "mm": [0.5 * n for n in range(12)], "place": ["<b>Ulm</b>"] * 12})
LONG = pd.DataFrame({"n": range(MAX_ROWS + 12)})


def cell_of(frame: pd.DataFrame, answer: str) -> list[Output]:
    """Return the outputs of a cell whose program displays ``frame``, without the code and the status line."""
    medium = bundle_medium({"text/plain": frame.to_string(), "text/html": frame._repr_html_()})
    assert medium is not None
    media = ({"mime": BUNDLE, "data": base64.b64encode(medium).decode()},)
    bodies: list[EventBody] = [
        CallStarted("c", "python", {"code": "frame"}, "draft"),
        CallFinished("c", "python", "success", frame.to_string(), 0.1, media),
        TextDelta(answer),
        TurnFinished("committed", "", 1, {}),
    ]
    turn = [Event(number, "turn", "session", 1, 0.0, body) for number, body in enumerate(bodies, 1)]
    return render_outputs(turn, TurnSummary("turn", "session"), "http://127.0.0.1:8888/")[1:-1]


@pytest.mark.parametrize("frame", [RAIN, LONG], ids=["whole", "shortened"])
def test_a_table_is_shown_once_and_the_text_of_the_answer_keeps_its_rows(frame: pd.DataFrame) -> None:
    answer = format_rows(rows_of(frame.to_string()))
    table, pointer = cell_of(frame, answer)
    assert "<table" in table["data"]["text/html"]
    assert ABOVE in pointer["data"]["text/html"]
    assert set(pointer["data"]) == {"text/html", "text/plain"}
    assert pointer["data"]["text/plain"] == answer


@pytest.mark.parametrize(
    "answer",
    [
        format_rows(["total 33.0", *rows_of(RAIN.to_string())]),
        format_rows(["January 0.5", "February 1.0"]),
        format_rows(["<b>Ulm</b>", "5.5"]),
        format_rows(["0 1 5.5 <b>Ulm</b>", "11 12 0.0 <b>Ulm</b>"]),
        f"{format_rows(rows_of(RAIN.to_string()))}\n\nUlm is dry.",
        "The result: 12 months.",
    ],
    ids=[
        "printed line before it",
        "other rows",
        "two values of it",
        "its values in other rows",
        "sentence behind it",
        "sentence",
    ],
)
def test_an_answer_that_says_more_than_the_table_is_shown_whole(answer: str) -> None:
    assert cell_of(RAIN, answer)[1]["data"]["text/plain"] == answer
    assert "text/markdown" in cell_of(RAIN, answer)[1]["data"]


def test_rows_that_no_table_shows_are_the_answer() -> None:
    assert not repeats_table(format_rows(["a 1", "b 2"]), [])
    assert not repeats_table(format_rows(["a 1", "b 2"]), ["", "no table"])


def test_columns_that_continue_below_are_recognized() -> None:
    wide = pd.DataFrame({f"column_{n}": ["a long text that takes space"] for n in range(6)})
    with pd.option_context("display.width", 80, "display.max_columns", 20):
        text = repr(wide)
    assert "\\" in text
    assert repeats_table(format_rows(rows_of(text)), [text])
