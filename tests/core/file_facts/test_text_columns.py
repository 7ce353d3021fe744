"""Tests which text of a column must be converted, and the line that converts it."""

from __future__ import annotations

import pandas as pd
import pytest

from agent_kernel.core.file_facts.text_columns import describe_conversion
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import find_missing_conversion


@pytest.mark.parametrize(
    "cells",
    [
        ["s1", "s2", "s3"],
        ["0041", "0042"],
        ["24:30", "31:05"],
        ["4.5/5", "3.9/5"],
        ["12 kg", "3 m"],
        ["(1,240)", "300"],
        ["5 sq.ft.", "6 sq.ft."],
        ["1.150 €", "2.980 €"],
        ["1.250,00", "1,250.00"],
        ["1.2.10", "1.2.11"],
        ["13.13.2025", "1.2.2025"],
        ["03/01/2025", "04/01/2025"],
        ["Rome", "Paris"],
        ["absent", "ill"],
        ["Y", "N", "1", "0"],
        ["yes", "1", "0"],
        [("a",), "b"],
        [1, 2],
        [],
    ],
)
def test_text_that_is_no_number_and_has_one_spelling_is_not_to_be_converted(cells: list[object]) -> None:
    assert describe_conversion("df", "x", cells) == ""


@pytest.mark.parametrize("cells", [["3:41:07", "12:00:00.5"], ["0:59:30", "1:02:11", "DNF", "1:10:00"]])
def test_times_become_durations(cells: list[object]) -> None:
    assert describe_conversion("df", "x", cells).endswith("x_time = pd.to_timedelta(df['x'], errors='coerce')")


@pytest.mark.parametrize("cells", [["3:41:07", "12:00"], ["3:41:07", "DNF", "DNS"], ["3:61:07"]])
def test_other_texts_with_colons_are_no_times(cells: list[object]) -> None:
    assert "timedelta" not in describe_conversion("df", "x", cells)


def test_groups_of_thousands_are_told_from_decimals() -> None:
    for cells in (["1.250.000", "3.000.000"], ["1.250,5", "84"]):
        assert ".str.replace(',', '.')" in describe_conversion("df", "x", cells)
    for cells in (["$1,250,000", "$3"], ["$1,250.5"], ["$3.5", "$1,240"]):
        fact = describe_conversion("df", "x", cells)
        assert "to_numeric" in fact
        assert ".str.replace(',', '.')" not in fact


def test_a_column_whose_name_is_no_name_of_a_variable_is_converted_under_one_that_is() -> None:
    fact = describe_conversion("df", "price (EUR)", ["1 €", "2 €"])
    assert "price__EUR__number = pd.to_numeric(df['price (EUR)']" in fact
    assert "column_2020_number = pd.to_numeric(df['2020']" in describe_conversion("df", "2020", ["1 €", "2 €"])


@pytest.mark.parametrize("cells", [["10%", "0%"], ["12.5 %", "3 %", "none"], ["5%", "10"]])
def test_the_numbers_of_percentages_have_a_name_that_says_so(cells: list[object]) -> None:
    assert "Convert it first: discount_percent = pd.to_numeric(" in describe_conversion("df", "discount", cells)


@pytest.mark.parametrize(
    ("cells", "name", "numbers"),
    [
        (["2.5 kg", "300g", "n/a"], "x_kg", [2.5, 0.3, None]),
        (["1.5 L", "330 ml", "2 cl"], "x_l", [1.5, 0.33, 0.02]),
        (["90 min", "2 h", "1.5 hours"], "x_min", [90, 120, 90]),
    ],
)
def test_numbers_in_several_units_of_one_kind_are_converted_to_one_unit(
    cells: list[object], name: str, numbers: list[float | None]
) -> None:
    fact = describe_conversion("df", "x", cells)
    names = {"pd": pd, "df": pd.DataFrame({"x": cells})}
    missing = find_missing_conversion("print(df['x'].sum())", [fact])
    assert missing is not None
    assert missing.line.startswith(f"{name} = ")
    exec(missing.line, names)
    result = names[name]
    assert isinstance(result, pd.Series)
    assert [None if pd.isna(one) else round(one, 6) for one in result] == numbers


@pytest.mark.parametrize(
    "cells", [["2.5 kg", "300 ml"], ["2,5 kg", "300 g"], ["2.5 kg", "3 x 300 g"], ["2.5 kg.", "300 g."]]
)
def test_other_units_are_not_converted(cells: list[object]) -> None:
    assert "several units" not in describe_conversion("df", "x", cells)
