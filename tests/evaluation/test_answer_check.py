from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import FAILED
from agent_kernel.evaluation.answer_check import Observation, is_same_value, named_values, numbers, reason_wrong
from agent_kernel.evaluation.task import Task


def task(**checks: object) -> Task:
    return Task("t", str(checks.pop("kind", "computation")), ("What is the largest of 3?",), **checks)  # type: ignore[arg-type]


def why(checks: dict[str, object], answer: str, **observed: object) -> str:
    return reason_wrong(task(**checks), Observation(answer, **observed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3,116.73 euros.", [3116.73]),
        ("-5 and −7", [-5, -7]),
        ("np.float64(2.5), about 56.25% of 1e3", [2.5, 56.25, 1000]),
        ("There are three (of 12, 15 or 1,234).", [12, 15, 1234, 3]),
        ("no2 and Q1 and v2.10 hold no number", []),
    ],
)
def test_numbers_are_found_however_they_are_written(text: str, expected: list[float]) -> None:
    assert numbers(text) == expected


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "about {} of them", "**{}**"]))
def test_a_whole_number_is_found_as_it_is_written(number: int, form: str) -> None:
    assert numbers(form.format(number)) == [number]


@given(st.decimals(-(10**9), 10**9, places=3))
def test_a_fraction_is_found_with_and_without_separators(number: object) -> None:
    assert numbers(f"It is {number:,}.") == numbers(f"It is {number}.") == [float(str(number))]


def test_a_list_with_the_right_number_in_it_is_no_answer() -> None:
    assert not why({"number": 9}, "The largest of the 3 is 9.")
    assert why({"number": 9}, "[4, 7, 9, 1]") == "says other numbers as well"


@pytest.mark.parametrize(
    ("checks", "answer", "expected"),
    [
        ({"number": 9}, " ", "no answer"),
        ({"number": 2.35, "decimals": 2}, "It is 2.3517.", ""),
        ({"number": 2.35, "decimals": 2}, "It is 2.36.", "does not say 2.35"),
        ({"number": 9, "also": (4, 7)}, "9 of 4 and 7 and 1", ""),
        ({"says": ("lima", "peru")}, "Lima, in Peru.", ""),
        ({"says": ("lima", "peru")}, "Lima.", "does not say peru"),
        ({"says": ("lima",), "never": ("quito",)}, "Lima or Quito.", "says quito"),
        ({"values": {"mean": "34.65"}}, "@mean[34.6512]", ""),
        ({"values": {"mean": "34.65", "n": "7"}}, "@mean[34.65]", "does not give @n"),
        ({"values": {"mean": "34.65"}}, "@mean[34.66]", "gives '34.66' as @mean, not '34.65'"),
        ({"values": {"mean": "34.65"}}, "First @mean[1], then @mean[34.65].", ""),
    ],
)
def test_an_answer_is_judged_by_each_check(checks: dict[str, object], answer: str, expected: str) -> None:
    assert why(checks, answer) == expected


def test_what_was_observed_is_judged_before_the_words() -> None:
    assert why({"kind": "chat", "says": ("hi",)}, "hi", codes=("1",)) == "ran code for chat"
    assert why({"holds": "x == 1"}, "", holds=False) == "the variables are not as asked"
    assert not why({"holds": "x == 1"}, "", holds=True)
    assert why({"draws": "figure"}, "", draws=False) == "no such picture"


def test_a_table_counts_where_the_output_shows_it_and_the_answer_does_not() -> None:
    checks: dict[str, object] = {"kind": "table", "says": (r"oak\D+3", r"elm\D+5")}

    assert why(checks, "There is a table.")
    assert not why(checks, "There is a table.", shown="oak  3\nelm  5")
    assert not why(checks, "| oak | 3 |\n| elm | 5 |", shown="oak  4")
    assert why(checks | {"kind": "pandas"}, "There is a table.", shown="oak  3\nelm  5")


def test_an_answer_that_reports_a_failure_is_wrong_even_where_the_error_has_the_right_word() -> None:
    answer = FAILED.format(error="NameError: name 'oak' is not defined")

    assert why({"says": ("oak",)}, answer) == "reports a failure"
    assert why({"number": 3}, FAILED.format(error="KeyError: 3")) == "reports a failure"
    assert not why({"holds": "repaired"}, answer, holds=True)


def test_values_are_read_from_anywhere_in_a_text() -> None:
    assert named_values("So:\n@mean_fare[34.65], @who[Ada\nLovelace] and @n[ 7 ]") == {
        "mean_fare": "34.65",
        "who": "Ada\nLovelace",
        "n": "7",
    }


@pytest.mark.parametrize(
    ("expected", "given_value", "same"),
    [
        ("34.65", "34.65", True),
        ("34.65", "34.6549", True),
        ("34.65", "34.7", False),
        ("22", "22.0", True),
        ("22", "22.4", False),
        ("1,234.5", "1234.50", True),
        ("1.2e-5", "0.000012", True),
        ("1.2e-5", "0.000014", False),
        ("1e-5", "0.00001", True),
        ("-0.5", "−0.5", True),
        ("Yes", "  yes", True),
        ("Not  normal", "not normal", True),
        ("a, b", "a, c", False),
        ("'red'", "red", True),
        ("7", "seven", False),
        ("inf", "inf", True),
        ("", "", True),
    ],
)
def test_values_agree_within_rounding_and_in_any_case(expected: str, given_value: str, same: bool) -> None:
    assert is_same_value(expected, given_value) is same


@given(st.decimals(-(10**6), 10**6, places=2))
def test_a_value_agrees_with_itself_and_not_with_its_neighbour(number: object) -> None:
    text = str(number)
    assert is_same_value(text, text)
    assert not is_same_value(text, f"{float(text) + 0.01:.2f}")
