"""Tests the answer after the last failed retry, which is written without the model, and the rows of an output that a
sentence would misstate.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pandas as pd
import pytest

from agent_kernel.core.messages import Message, Status, ToolCall, Usage, assistant, tool_result, user
from agent_kernel.core.protocols import Chunk, EndChunk, EngineRequest, TextChunk, ToolSpec
from agent_kernel.engines.local.tool_calling.code_fence_answer_checks import stream_corrected
from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import (
    MAX_ROWS,
    agrees,
    error_line,
    format_rows,
    rows_of,
    with_asked_decimals,
    with_true_dates,
)
from agent_kernel.engines.local.tool_calling.code_fence_protocol import Fence
from agent_kernel.notebook.kernel.hidden_errors import CATCHES, LEAVES_OUT
from tests.engines.local.scripted_backend import ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

PYTHON = ToolSpec("python", "Runs code.", {}, kind="test")
TABLE = "species\nAdelie       3600.5\nGentoo       5076.0\nName: mass, dtype: float64"
QUESTION = "Which species is the heaviest?"


def ran(text: str, status: Status, number: int = 1, name: str = "python") -> list[Message]:
    call = ToolCall(f"c{number}", name, {"code": "x"})
    return [assistant("", [call]), tool_result(call, text, status)]


async def answer_text(answers: list[str], *messages: Message) -> str:
    backend = ScriptedBackend(chat_templates.PLAIN, answers)
    chunks = await chunks_of(Fence(), backend.completer(), EngineRequest(messages, (PYTHON,)))
    assert isinstance(chunks[-1], EndChunk)
    assert chunks[-1].reason == "stop"
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


async def test_after_the_last_try_failed_it_says_so_and_names_the_error() -> None:
    tries = [*ran("KeyError: 'a'", "error"), *ran("Traceback\nKeyError: 'b'\n(Draft: df is changed.)", "error", 2)]

    assert await answer_text([], user("Go."), *tries) == (
        "I did not manage to do this. The last try ended with: KeyError: 'b'\n\n"
        "An earlier try ended with: KeyError: 'a'"
    )


async def test_the_answer_names_a_refused_correction_without_the_words_for_the_model() -> None:
    refused = f"{LEAVES_OUT}\n(Draft: nothing is changed.)"
    tries = [*ran(CATCHES.format(error="KeyError"), "error"), *ran(refused, "error", 2)]
    assert await answer_text([], user("Go."), *tries) == (
        "I did not manage to do this. The last try ended with: the code leaves out the statement that failed.\n\n"
        "An earlier try ended with: the code catches KeyError at the statement that failed."
    )


async def test_the_answer_after_the_last_try_names_the_line_that_failed() -> None:
    error = "Traceback (most recent call last):\n  line 2, in <module>\n    df['b'].sum()\nKeyError: 'b'"
    tries = [*ran("KeyError: 'b'", "error"), *ran(error, "error", 2)]
    assert await answer_text([], user("Go."), *tries) == (
        "I did not manage to do this. The last try ended with: KeyError: 'b'\n\nThe line that failed: `df['b'].sum()`"
    )


async def test_a_failed_line_that_would_break_the_markup_or_is_long_is_left_out() -> None:
    for line in ("x = '`'", "x = " + "1" * 300):
        tries = [*ran("KeyError: 'b'", "error"), *ran(f"  line 1, in <module>\n    {line}\nKeyError: 'b'", "error", 2)]
        answer = await answer_text([], user("Go."), *tries)
        assert answer == "I did not manage to do this. The last try ended with: KeyError: 'b'"


async def test_code_that_ran_out_of_time_is_said_so() -> None:
    assert (
        await answer_text([], user("Go."), *ran("", "timeout"))
        == "I did not manage to do this: the code ran out of time."
    )


async def test_rows_that_were_asked_for_are_shown_as_they_are() -> None:
    answer = await answer_text([], user("What is the mean mass of each species?"), *ran(TABLE, "success"))

    assert answer == "The result:\n\n    species\n    Adelie       3600.5\n    Gentoo       5076.0"


@pytest.mark.parametrize(
    ("sentence", "stays"),
    [
        ("Gentoo is the heaviest with 5076.0.", True),
        ("Gentoo is the heaviest, about 5076 g.", True),
        ("Gentoo.", True),
        ("The mean mass of each species is 3600.5.", False),
        ("Adelie is the heaviest with 5076.", False),
        ("The heaviest species weighs 9000.", False),
        ("The output shows the masses.", False),
    ],
)
async def test_a_sentence_about_rows_stays_only_if_its_numbers_stand_in_the_rows_that_it_names(
    sentence: str, stays: bool
) -> None:
    answer = await answer_text([sentence], user(QUESTION), *ran(TABLE, "success"))

    assert (answer == sentence) is stays
    assert ("Gentoo       5076.0" in answer) is not stays


@pytest.mark.parametrize(
    "printed", [pd.DataFrame({"id": [1], "total": [2.5]}).head(0), pd.Series([1.5], name="total").head(0)]
)
async def test_a_table_without_rows_is_said_to_have_none(printed: object) -> None:
    prompt = user("Show the orders with a total above 100.")
    assert await answer_text([], prompt, *ran(f"{printed}\n", "success")) == "The result has no rows."
    more = await answer_text(["There are 4 orders."], user("How many orders?"), *ran(f"{printed}\n4", "success"))
    assert "4" in more


async def test_results_of_other_tools_and_single_values_are_left_to_the_model() -> None:
    assert await answer_text(["It is 3."], user("How many rows per day?"), *ran("3", "success")) == "It is 3."
    assert await answer_text(["Sorry."], user("Go."), *ran("ValueError: x", "error", name="search")) == "Sorry."


def test_the_error_is_found_before_notes_for_people() -> None:
    assert error_line("Traceback\n  df.x\nAttributeError: no x\n(Draft: df is new.)\n") == "AttributeError: no x"
    assert error_line("pandas.errors.ParserError: bad\nmore of it") == "pandas.errors.ParserError: bad"
    assert error_line("went wrong\n(a note)") == "went wrong"
    assert error_line("") == "an error"


def test_footers_are_no_rows_and_long_outputs_are_cut() -> None:
    assert rows_of("(4, 2)\n(Draft: fuel is new. It is so in this draft only.)") == []
    assert rows_of("7\n[1 figure(s) shown]") == []
    assert rows_of("7\n[1 figure(s) shown]\n[1 image(s) shown to the person]") == []
    assert rows_of("(5, 2)\nline 1: Pandas4Warning: The inplace keyword is deprecated.") == []
    assert rows_of("7\nDeprecationWarning: old") == []
    assert rows_of("(no output)\nFiles:\n- squares.csv (text/csv, 19 bytes, id file_1)\n    1\n    4") == []
    assert format_rows([str(number) for number in range(100)]).endswith(f"... {100 - MAX_ROWS} more rows")
    assert not agrees("The total is 13.5.", ["0  13.5", "1  20.0", "2  8.75"], "What is the total?")
    assert agrees("a is 5 and b is 7.", ["5", "7"], "What are a and b?")
    assert agrees("Pia won in 58.3 s.", ["0  Pia  58.3", "1  Quin  55.1"], "Who won?")


@pytest.mark.parametrize(
    ("sentence", "output", "question", "expected"),
    [
        ("It is January, with 26.1.", "8 26.11", "Which month is best?", "It is month 8, with 26.1."),
        ("It is August, with 26.1.", "8 26.11", "Which month is best?", "It is August, with 26.1."),
        ("Rain fell mostly in May.", "(3, 5)", "And when?", "Rain fell mostly in May."),
        ("It was a Sunday.", "6", "Which day of the week was it?", "It was a Sunday."),
        ("It was a Tuesday.", "6", "Which day of the week was it?", "It was a day 6."),
        ("In January it was 26.1.", "8 26.11", "How warm was January?", "In January it was 26.1."),
        ("The best is March.", "Mar 17", "Which is best?", "The best is March."),
        ("It was in March.", "month='Mar', mm=88 (row 2 of rain)", "When was it?", "It was in March."),
        ("The best is March.", "2019-11-03 00:00:00", "Which is best?", "The best is March."),
    ],
)
def test_a_date_that_the_output_does_not_support_becomes_its_number(
    sentence: str, output: str, question: str, expected: str
) -> None:
    assert with_true_dates(sentence, output, question) == expected


async def test_dates_are_checked_word_by_word_while_the_answer_streams() -> None:
    async def pieces() -> AsyncGenerator[Chunk, None]:
        for text in ("The warmest is Jan", "uary", ", with 26", ".1"):
            yield TextChunk(text)
        yield EndChunk("stop", Usage())

    chunks = [chunk async for chunk in stream_corrected(pieces(), "8 26.11", "Which month is it?")]
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)]
    assert texts == ["The warmest is ", "month 8, with ", "26.1"]
    assert isinstance(chunks[-1], EndChunk)


@pytest.mark.parametrize(
    ("sentence", "question", "expected"),
    [
        ("The mean is 16.43908281.", "The mean, rounded to one decimal?", "The mean is 16.4."),
        ("The mean is 16.43908281.", "The mean, to 2 decimals?", "The mean is 16.44."),
        ("It is -0.126, as asked.", "Auf 2 Nachkommastellen bitte", "It is -0.13, as asked."),
        ("It is 1,204.561.", "The sum to two decimals", "It is 1,204.56."),
        ("The mean is 16.43908281.", "What is the mean?", "The mean is 16.43908281."),
        ("It is 16.4 or 3.14159.", "The mean to 2 decimals", "It is 16.4 or 3.14159."),
        ("It is 16.43908281.", "One to 1 decimal, the other to 2 decimals", "It is 16.43908281."),
        ("On 26.11.2024", "To 1 decimal", "On 26.11.2024"),
    ],
)
def test_numbers_of_the_output_get_the_decimals_that_the_question_asks_for(
    sentence: str, question: str, expected: str
) -> None:
    assert with_asked_decimals(sentence, "16.43908281 -0.126 1,204.561 26.11.2024", question) == expected


async def test_a_number_that_arrives_in_pieces_is_rounded() -> None:
    async def pieces() -> AsyncGenerator[Chunk, None]:
        for piece in ("It is 16", ".439", "08 m", "."):
            yield TextChunk(piece)
        yield EndChunk("stop", Usage())

    chunks = [chunk async for chunk in stream_corrected(pieces(), "16.43908", "To 1 decimal?")]
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "It is 16.4 m."
