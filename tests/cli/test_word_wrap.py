"""Tests that running text breaks between words at the width of the terminal, also if it arrives in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.cli.base.word_wrap import WordWrapper


@pytest.fixture(autouse=True)
def terminal_of_30_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")


def wrapped(*parts: str) -> str:
    wrapper = WordWrapper()
    return "".join(map(wrapper.feed, parts)) + wrapper.flush()


def test_a_line_breaks_between_words() -> None:
    text = "The mean temperature of the northwestern stations is 41.3 degrees."
    assert wrapped(text) == "The mean temperature of the\nnorthwestern stations is 41.3\ndegrees."


def test_what_follows_a_break_is_below_the_text_of_a_list_item() -> None:
    text = "- the first of the two stations\n12. the second of the two stations\n"
    assert wrapped(text) == "- the first of the two\n  stations\n12. the second of the two\n    stations\n"
    assert wrapped("  /file X   let the file go along") == "  /file X   let the file go\n            along"


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint('a long line of code', that, stays)\n```\n",
        "| station | mean | median | count |\n|---|---|---|---|\n",
        "    print('a long line of code', that, stays)\n",
    ],
)
def test_code_and_tables_stay_as_they_are(text: str) -> None:
    assert wrapped(text) == text
    assert wrapped(*text) == text
    assert wrapped(text, "The mean temperature of the northwestern").endswith("of the\nnorthwestern")


def test_a_word_that_is_wider_than_the_terminal_stays_whole() -> None:
    path = "/data/" + "northwestern/" * 3
    assert wrapped(f"Saved {path} now") == f"Saved\n{path} now"


def test_wide_characters_take_two_columns() -> None:
    assert wrapped("平均値は 四十一度です 最高値は 五十度です") == "平均値は 四十一度です\n最高値は 五十度です"


def test_a_complete_word_is_shown_at_once() -> None:
    wrapper = WordWrapper()
    assert [wrapper.feed(part) for part in ("The me", "an is ", "41")] == ["The", " mean is", ""]
    assert wrapper.flush() == " 41"


@given(st.text("ab -|`#1.\n", max_size=80), st.integers(0, 80))
def test_the_parts_in_which_a_text_arrives_change_nothing(text: str, at: int) -> None:
    assert wrapped(text[:at], text[at:]).split() == wrapped(text).split() == text.split()
