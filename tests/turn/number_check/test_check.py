"""Tests that each number of an answer is found in the outputs, or reported as found in none."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.turn.number_check.check import MAX_NUMBERS, CheckedNumber, NumberSource, check, check_turn, claims
from agent_kernel.turn.number_check.number_parser import blank_non_numbers
from agent_kernel.turn.number_check.stored_numbers import from_record, to_record


def status(answer: str, output: str = "", said: str = "", code: str = "") -> dict[str, str]:
    found = check(answer, [NumberSource(output, "call")], [NumberSource(said)], [NumberSource(code, "call")])
    return {number.text: number.status for number in found}


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ("The mean is 41.3.", "mean    41.2871"),
        ("It is 41.30", "41.3"),
        ("2.5 rounds to 3", "2.5"),
        ("7% of rows", "0.0712"),
        ("7 % of rows", "7.04"),
        ("about 7 percent", "0.07"),
        ("7,5 Prozent", "0.0749"),
        ("3‰", "0.003"),
        ("1,234,567 rows", "1234567"),
        ("1.234.567 Zeilen", "1234567"),
        ("1 234 567 lignes", "1234567"),
        ("1\N{NARROW NO-BREAK SPACE}234,5 euros", "1234.5"),
        ("1'234'567 Zeilen", "1234567"),
        ("12,34,567 rows", "1234567"),
        ("3,14 als Wert", "3.14159"),
        ("1.2M rows", "1204000"),
        ("$3.4bn", "3412345678"),
        ("12k users", "12345"),
        ("1.2 million rows", "1204000"),
        ("3,5 Milliarden", "3500000000"),
        ("12万行", "120345"),
        ("1.5e-5", "0.000015"),
        ("p = 2×10⁻³", "0.002"),
        (r"$2.5 \times 10^{-4}$", "0.00025"),
        ("-3.2 points", "delta -3.2"),
        ("\N{MINUS SIGN}3.2 points", "-3.2"),
        ("fell by 3.2", "-3.2"),
        ("12.3 MB", "12300000"),
        ("45 ms", "0.0451"),
        ("~12,000 rows", "12034"),
        ("150行", "150"),
        ("٤٢ صفا", "42"),
        ("| mean | 41.3 |", "41.25"),
        ("`41.3`", "41.3"),
        ("(100, 5) rows", "(100, 5)"),
        ("values 7,8,9", "[9, 8, 7]"),
        ("it was 1234", "1,234.00 in all"),
        ("[7, 8]", "7,8"),
    ],
)
def test_a_number_that_an_output_rounds_to_is_computed(answer: str, output: str) -> None:
    found = status(answer, output)
    assert found
    assert set(found.values()) <= {"computed"}


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ("The mean is 41.3.", "41.2"),
        ("The mean is 41.3.", "41.36"),
        ("7%", "0.08"),
        ("1.2M", "1304000"),
        ("+3.2", "-3.2"),
        ("-3.2", "3.2"),
        ("1234 rows", "1.234"),
        ("12,000 rows", "12034"),
        ("5 groups", "col_5 x5 A-5"),
        ("5 groups", "on 2024-05-05 at 5:05, version 5.5.5"),
    ],
)
def test_a_number_that_no_output_rounds_to_is_open(answer: str, output: str) -> None:
    assert set(status(answer, output).values()) == {"open"}


@pytest.mark.parametrize(
    "answer",
    [
        "On 2024-03-15 at 12:30, and 15.03.2024",
        "March 5, 2020 and 15. März 2021 and 5 de mayo de 2022 and 2024年3月15日",
        "in 2019 and 1999–2003",
        "1. First\n2. Second\n 3) third",
        "### 3.1 Results",
        "the 3rd, 21st, 2e, 5º",
        "GPT-4, H2O, x_3, col7, 10.0.0.1, v1.2.3",
        "see Figure 3, Table 4 and [5], 第6",
        "the 2 groups and 1 row of 0",
        "```python\nx = 77\n```\nand `df.head(99)`",
        "[link](http://example.org/77/88) http://example.org/99",
        "007",
        "",
    ],
)
def test_what_only_looks_like_a_claim_is_passed_over(answer: str) -> None:
    assert status(answer, "nothing") == {}


def test_a_year_that_was_computed_is_linked_all_the_same() -> None:
    assert status("The best year was 2019", "year 2019") == {"2019": "computed"}


def test_what_the_person_said_and_what_stands_in_the_code_are_told_apart_from_what_was_computed() -> None:
    found = status("The top 5 at 0.05 have 17 rows, 99 others", "17", said="the top 5?", code="test(alpha=0.05)")
    assert found == {"5": "given", "0.05": "code", "17": "computed", "99": "open"}


def test_a_number_in_a_comment_of_the_code_is_only_said() -> None:
    call = ToolCall("a", "python", {"code": "print('done')  # the mean is 41.3"})
    messages = [user("mean?"), assistant("", [call]), tool_result(call, "done", "success"), assistant("It is 41.3")]
    found = check_turn("It is 41.3", [], messages)
    assert found
    assert found[0].status == "open"


def test_the_place_is_the_call_the_line_and_its_text_and_of_equal_ones_the_newest() -> None:
    outputs = [NumberSource("old 41.3", "first"), NumberSource("count 10\nmean 41.3\nagain 41.3", "second")]
    (found,) = check("It is 41.3.", outputs)
    assert (found.call, found.line, found.shown) == ("second", 2, "mean 41.3")
    assert (found.start, found.end) == (6, 10)


def test_the_nearest_value_counts() -> None:
    (found,) = check("41.3", [NumberSource("41.33\n41.301\n41.26", "c")])
    assert found.line == 2


def test_nothing_is_checked_where_no_tool_ran() -> None:
    assert check_turn("It is 41.3", [], [user("mean?"), assistant("It is 41.3")]) is None


def test_outputs_of_earlier_turns_and_notes_count_too() -> None:
    call = ToolCall("a", "python", {"code": "mean()"})
    earlier = [user("mean?"), assistant("", [call]), tool_result(call, "41.3", "success"), assistant("41.3")]
    note = user("df: 150 rows", hidden=True)
    found = check_turn("41.3 of 150", earlier, [note, user("again?"), assistant("41.3 of 150")])
    assert found
    assert [(number.text, number.status, number.call) for number in found] == [
        ("41.3", "computed", "a"),
        ("150", "given", ""),
    ]


def test_claims_are_without_what_the_person_said() -> None:
    found = check("5 and 17", [NumberSource("17", "c")], [NumberSource("5")])
    assert [number.text for number in claims(found)] == ["17"]


def test_a_record_gives_back_what_was_announced() -> None:
    call = ToolCall("a", "python", {"code": "1"})
    messages: list[Message] = [user("?"), assistant("", [call]), tool_result(call, "x\n41.2871", "success")]
    messages.append(assistant("It is 41.3, not 7%"))
    found = check_turn(messages[-1].text, [], messages)
    assert found
    assert from_record(to_record(found), messages) == found


@pytest.mark.parametrize(
    "told",
    [None, 5, {}, [5], [[1]], [[0, 999, "open", "", 0]], [[3, 1, "open", "", 0]], [[0, 1, "bad", "", 0]],
     [["0", 1, "open", "", 0]]],
)  # fmt: skip
def test_a_record_that_somebody_wrote_harms_nothing(told: object) -> None:
    assert from_record({"numbers": told}, [assistant("It is 41.3")]) == ()


def test_an_answer_of_too_many_numbers_is_checked_in_part() -> None:
    assert len(check(" ".join(map(str, range(3, 2000))), [NumberSource("", "c")])) == MAX_NUMBERS


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_is_too_strange(answer: str, output: str) -> None:
    for number in check(answer, [NumberSource(output, "c")]):
        assert answer[number.start : number.end] == number.text
        assert 0 <= number.start < number.end <= len(answer)


PIECES = st.lists(st.sampled_from([*"0123456789.,-+eE%' _k\n`#$^×", "10", "×10⁻³", " million", "\N{MINUS SIGN}"]))


@given(PIECES.map("".join), PIECES.map("".join))
def test_no_spelling_of_numbers_is_too_strange(answer: str, output: str) -> None:
    found = check(answer, [NumberSource(output, "c")])
    assert found == check(answer, [NumberSource(output, "c")])
    assert [number.start for number in found] == sorted(number.start for number in found)
    for number in found:
        assert number == CheckedNumber(**number.to_json())


@given(st.floats(min_value=-1e9, max_value=1e9), st.integers(0, 8))
def test_whatever_python_rounds_is_found(value: float, digits: int) -> None:
    rounded = f"{value:.{digits}f}"
    if abs(float(rounded)) < 3:
        rounded = f"{rounded}5" if "." not in rounded else rounded
        value = float(rounded)
    found = check(f"It is {rounded} in all.", [NumberSource(f"result {value!r}", "c")])
    assert [number.status for number in found if not math.isclose(float(rounded), 0)] in ([], ["computed"])


@given(st.integers(3, 10**12))
def test_grouped_digits_are_the_number(value: int) -> None:
    for written in (f"{value:,}", f"{value:,}".replace(",", "."), f"{value:,}".replace(",", "'"), f"{value:_}"):
        assert set(status(f"There are {written}", str(value)).values()) <= {"computed"}


@given(st.floats(min_value=0.001, max_value=0.999), st.integers(0, 3))
def test_a_fraction_is_found_as_percent(value: float, digits: int) -> None:
    assert set(status(f"That is {value * 100:.{digits}f}%", repr(value)).values()) <= {"computed"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("version 1.2.3 of 4", "version       of 4"),
        ("1.2.3.4,", "       ,"),
        ("1.2.33", "      "),
        ("1.2", "1.2"),
        ("1.234.567", "1.234.567"),
        ("v1.2.3", "v1.2.3"),
        ("at 1.2.3.", "at      ."),
    ],
)
def test_versions_are_no_numbers(text: str, left: str) -> None:
    assert blank_non_numbers(text) == left


def test_a_long_chain_of_digits_and_dots_is_read_once() -> None:
    """Four times the text is four times the work; sixteen where each place is tried as a beginning."""

    def took(size: int) -> float:
        text = "1." * (size // 2) + "1,1"
        best = math.inf
        for _ in range(5):
            since = time.process_time()
            blank_non_numbers(text)
            best = min(best, time.process_time() - since)
        return best

    assert took(32_000) / took(8_000) < 9
