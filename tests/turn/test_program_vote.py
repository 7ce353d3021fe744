"""Tests which of several programs wins: they are grouped by what they show and change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.turn.program_vote import (
    OTHER_CHARS,
    OTHER_LINES,
    OutcomeView,
    TriedProgram,
    describe_outcome,
    vote,
)
from tests.narrowing import not_none


def ran(text: str, code: str = "", figures: int = 0, **variables: str) -> TriedProgram:
    return TriedProgram(code, ProgramOutcome("success", text, figures, variables))


FAILED = TriedProgram("1 / 0", ProgramOutcome("error", "ZeroDivisionError: division by zero"))


def agree(one: TriedProgram, other: TriedProgram) -> bool:
    return OutcomeView(one).agrees(OutcomeView(other))


def test_the_largest_group_wins_and_the_first_of_it_is_used() -> None:
    decided = not_none(vote([ran("7"), ran("9"), ran("9.0"), ran("9")]))
    assert (decided.winner, decided.agree, decided.tried) == (1, 3, 4)
    assert (not_none(decided.other).text, decided.other_agree) == ("7", 1)


def test_a_tie_goes_to_the_likelier_program() -> None:
    assert not_none(vote([ran("7"), ran("9"), ran("9"), ran("7")])).winner == 0


def test_if_no_two_outcomes_agree_those_agree_that_end_with_the_same_numbers() -> None:
    decided = not_none(vote([ran("rows: 12\n4"), ran("12 rows\nmean 7.25"), ran("7.251"), ran("no number")]))
    assert (decided.winner, decided.agree, decided.tried) == (1, 2, 4)


def test_a_program_that_leaves_out_more_of_the_question_loses() -> None:
    decided = not_none(vote([replace(ran("7"), omits=1), replace(ran("7"), omits=1), ran("9")]))
    assert decided.winner == 2


def test_programs_that_print_the_demanded_values_agree_if_those_are_equal() -> None:
    one = replace(ran("rows: 12\n@mean[4.0]", figures=1, mean="a"), answer="@mean[4.0]")
    other = replace(ran("@mean[4]", "x = 4", mean="b"), answer="@mean[4]")
    assert agree(one, other)
    assert not agree(one, replace(other, answer="@mean[5]"))


def test_of_equally_many_outcomes_the_one_wins_whose_single_values_more_programs_have() -> None:
    answers = ["@n[1]\n@m[2]\n@d[no]", "@n[1]\n@m[3]\n@d[yes]", "@n[1]\n@m[2]\n@d[yes]", "@n[4]\n@m[2]\n@d[yes]"]
    decided = not_none(vote([replace(ran(answer), answer=answer) for answer in answers]))
    assert (decided.winner, decided.agree) == (2, 1)


@pytest.mark.parametrize(
    ("texts", "close"),
    [
        (["9"] * 5 + ["7"] * 2 + ["8"], True),
        (["9"] * 5 + ["7", "8", "6"], False),
        (["9"] * 6 + ["7"] * 2, False),
        (["9"] * 4 + ["7"] * 2, False),
        (["9"] * 2 + ["7"] * 2, True),
        (["9"] * 8, False),
    ],
)
def test_a_vote_is_close_below_two_thirds_if_a_second_group_has_two_members(texts: list[str], close: bool) -> None:
    decided = not_none(vote([ran(text) for text in texts]))
    assert (decided.is_close, bool(decided.disagreement), decided.record["close"]) == (close, close, close)


def test_the_other_result_is_its_first_lines_and_what_it_showed_and_changed() -> None:
    outcome = ran("\n".join(map(str, range(20))), figures=2, best="d1").outcome
    *lines, more, figures, variables = describe_outcome(outcome).splitlines()
    assert lines == list(map(str, range(OTHER_LINES)))
    assert (more, figures, variables) == ("(12 more lines)", "(2 figures)", "(with other contents of best)")


@given(st.text(max_size=2_000))
def test_the_other_result_is_bounded(text: str) -> None:
    assert len(describe_outcome(ran(text).outcome)) <= OTHER_CHARS


def test_programs_that_fail_have_no_vote() -> None:
    decided = not_none(vote([FAILED, FAILED, ran("9")]))
    assert (decided.winner, decided.agree, decided.tried) == (2, 1, 3)
    assert vote([FAILED, FAILED]) is None


def test_a_program_that_shows_and_changes_nothing_loses_against_one_that_does() -> None:
    assert not_none(vote([ran("(no output)"), ran("(no output)"), ran("9")])).winner == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ran("605.3333333333334"), ran("605.33")),
        (ran("605.3"), ran("605.3333333333334")),
        (ran("np.float64(4.5)"), ran("4.5")),
        (ran("1,204"), ran("1204")),
        (ran("Mean: 4.5", "print('Mean:', x)"), ran("4.5", "print(x)")),
        (ran("The answer is Sencha", "print(f'The answer is {tea}')"), ran("Sencha", "print(tea)")),
        (ran("a    1\nb    2\nName: rain, dtype: int64"), ran("a    1\nb    2\ndtype: int64")),
        (ran("(no output)", x="d1"), ran("(no output)", x="d1")),
    ],
)
def test_outcomes_agree_within_rounding_and_without_labels(one: TriedProgram, other: TriedProgram) -> None:
    assert agree(one, other)
    assert agree(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ran("605.3"), ran("605.4")),
        (ran("12"), ran("13")),
        (ran("1 2"), ran("2 1")),
        (ran("1 2"), ran("1")),
        (ran("Sencha"), ran("Assam")),
        (ran("a 1\nb 2"), ran("b 1\na 2")),
        (ran("", figures=1), ran("", figures=0)),
        (ran("(no output)", x="d1"), ran("(no output)", x="d2")),
        (ran("-4"), ran("4")),
    ],
)
def test_outcomes_that_say_something_else_do_not_agree(one: TriedProgram, other: TriedProgram) -> None:
    assert not agree(one, other)
    assert not agree(other, one)


@given(st.lists(st.sampled_from(["7", "9", "Ada", "(no output)"]), min_size=1, max_size=9))
def test_the_winner_is_never_in_a_smaller_group_than_another_outcome(texts: list[str]) -> None:
    decided = not_none(vote([ran(text) for text in texts]))
    shown = [text for text in texts if text != "(no output)"] or texts
    assert decided.agree == max(map(shown.count, shown))
    assert texts.index(texts[decided.winner]) == decided.winner


@given(st.text(max_size=200), st.text(max_size=50))
def test_any_output_agrees_with_itself(text: str, code: str) -> None:
    assert agree(ran(text, code), ran(text, code))
