from __future__ import annotations

import pytest

from agent_kernel.engines.local.infill import AFTER_CHARACTERS, BEFORE_CHARACTERS, STEP, Gap

LINES = "".join(f"x{n} = {n}\n" for n in range(400))


@pytest.mark.parametrize(
    ("prefix", "suffix", "text", "kept"),
    [
        ("x = ", "", "1\ny = 2", "1"),
        ("", ")", "a\nb", "a"),
        ("def f():\n    ", "", "a = 1\n    return a\nprint(f())", "a = 1\n    return a"),
        ("def f():\n    ", "", "    return 1", "return 1"),
        ("", "", "import os\nimport sys\n\nx", "import os\nimport sys"),
    ],
)
def test_a_completion_ends_with_the_line_or_with_the_block(prefix: str, suffix: str, text: str, kept: str) -> None:
    assert Gap(prefix, suffix).trim(text) == kept


def test_the_text_nearest_to_the_cursor_is_used_from_the_beginning_of_a_line() -> None:
    gap = Gap(f"{LINES}y = ", f"\n{LINES}", LINES)
    before, after = gap.before(), gap.after()
    assert BEFORE_CHARACTERS - STEP - 20 < len(before) <= BEFORE_CHARACTERS
    assert before.startswith("x")
    assert before.endswith("x399 = 399\ny = ")
    assert AFTER_CHARACTERS - 20 < len(after) <= AFTER_CHARACTERS
    assert after.endswith("\n")
    assert Gap("y = ", "", "import math").before() == "import math\n\ny = "


def test_a_text_of_one_long_line_is_cut_in_the_line() -> None:
    gap = Gap("a" * 9_000 + "b", "c" + "d" * 9_000)
    assert BEFORE_CHARACTERS - STEP <= len(gap.before()) <= BEFORE_CHARACTERS
    assert (gap.before()[-1], gap.after()[0], len(gap.after())) == ("b", "c", AFTER_CHARACTERS)


def test_the_text_before_the_cursor_keeps_its_beginning_while_a_person_types() -> None:
    """Otherwise the model would read all of it again at each key."""
    beginnings = {Gap(LINES[:typed]).before()[:200] for typed in range(2_600, 3_500)}
    assert len(beginnings) == 1


def test_the_beginning_stays_when_a_cell_becomes_one_above() -> None:
    above, cell = LINES[:1_998], LINES[2_000:2_100]
    assert Gap(cell, "", above).before() == Gap(f"{above}\n\n{cell}").before()
