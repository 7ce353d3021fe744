from __future__ import annotations

import linecache
import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.notebook.kernel.variable_summary import (
    MAX_CHARS,
    NAMED,
    NEWEST,
    describe_data,
    named_in_braces,
    summary,
    tables_mentioned,
    without_braces,
)


class Unknown:
    def __repr__(self) -> str:
        raise AssertionError("an unknown object was asked for its text")

    __str__ = __repr__

    def __len__(self) -> int:
        raise AssertionError("an unknown object was asked for its length")


def documented(one: int, two: int) -> None:
    """Says what it does.

    And more.
    """


WEATHER = pd.DataFrame(
    {
        "date": pd.to_datetime(["2012-01-01", "2012-01-02"]),
        "rain": [0.0, 10.9],
        "weather": ["drizzle", "rain"],
    }
)


def test_a_data_frame_is_told_by_size_columns_first_row_ranges_and_categories() -> None:
    first, row, *facts = summary("df", WEATHER).splitlines()
    assert first.startswith("df: DataFrame, 2 rows x 3 columns: date datetime64[")
    assert "rain float64" in first
    assert row == "first row: date='2012-01-01 00:00:00', rain=0.0, weather='drizzle'"
    assert facts == ["date: from 2012-01-01 00:00:00 to 2012-01-02 00:00:00", "weather values: drizzle, rain"]


def test_a_data_frame_with_a_start_and_an_end_is_told_with_the_days_between_them() -> None:
    days = pd.to_datetime(["2025-03-01", "2025-03-04"])
    text = summary("stays", pd.DataFrame({"admission": days, "discharge": days + pd.Timedelta(days=2)}))
    assert text.endswith("stays['days'] = (stays['discharge'] - stays['admission']).dt.total_seconds() / 86400")


def test_a_data_frame_with_quantities_and_prices_is_told_with_the_product() -> None:
    text = summary("orders", pd.DataFrame({"quantity": [2, 3], "unit_price": [1.5, 2.0], "country": ["FR", "DE"]}))
    assert text.endswith("Compute it first: orders['amount'] = orders['quantity'] * orders['unit_price']")


def test_the_missing_values_of_a_data_frame_are_counted_by_column() -> None:
    frame = pd.DataFrame({"temp": [1.0, None, None], "city": ["Rome", None, "Bari"], "rain": [0, 1, 2]})
    assert summary("df", frame).splitlines()[-1] == "missing values: temp 2, city 1"


def test_numbers_and_truth_values_of_the_first_row_are_not_quoted() -> None:
    frame = pd.DataFrame({"rooms": [2], "price": [1.5], "garden": [True], "street": ["High"]})
    assert "first row: rooms=2, price=1.5, garden=True, street='High'" in summary("houses", frame)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "x: int = 3"),
        (None, "x: NoneType = None"),
        ("abc", "x: str of 3 characters: 'abc'"),
        ([1, "two", Unknown()], "x: list of 3: 1, 'two', test_variable_summary.Unknown"),
        ({"a": 1}, "x: dict of 1: 'a': 1"),
        (np.arange(6).reshape(2, 3), "x: numpy.ndarray, shape (2, 3), int64\nfirst: 0, 1, 2, 3, 4"),
        (pd.Series([1, 2], name="s"), "x: Series s, 2 values of int64\nfirst: 1, 2"),
        (math, "x: module math"),
        (documented, "x: function documented(one, two)\nSays what it does."),
        (pd.DataFrame(), "x: DataFrame, 0 rows x 0 columns:"),
    ],
)
def test_known_values_are_told_in_facts(value: Any, text: str) -> None:
    assert summary("x", value).replace("tests.notebook.kernel.", "").rstrip() == text


def test_an_unknown_object_is_named_by_its_type_and_not_asked_for_anything() -> None:
    assert summary("x", Unknown()).endswith("test_variable_summary.Unknown")


@pytest.mark.parametrize(
    "value", ["x" * 10**6, list(range(10**5)), pd.DataFrame({f"column{i}": ["v" * 500] for i in range(500)})]
)
def test_a_summary_has_a_size_limit(value: Any) -> None:
    assert len(summary("x", value)) <= MAX_CHARS + 4


def test_a_frame_with_cells_that_can_not_be_compared_is_told_all_the_same() -> None:
    assert "1 rows x 1 columns" in summary("df", pd.DataFrame({"cells": [[1, 2]]}))


def test_only_names_of_variables_are_taken_from_braces() -> None:
    namespace = {"df": 1, "x": 2}
    prompt = 'use {df}, {{x}}, {unknown}, {df.shape}, {x[0]} and {"x": 1}'
    assert named_in_braces(prompt, namespace) == ["df"]
    assert without_braces(prompt, ["df"]) == 'use df, {{x}}, {unknown}, {df.shape}, {x[0]} and {"x": 1}'


def test_tables_are_found_by_their_bare_name() -> None:
    namespace = {"df": WEATHER, "a": WEATHER, "rain": WEATHER["rain"], "number": 3}
    assert tables_mentioned("plot a line of rain in df, number of df.x", namespace) == ["rain", "df"]


SALES = pd.DataFrame({"month": [1], "Revenue": [2.0], "name": ["x"]})


@pytest.mark.parametrize(
    ("prompt", "tables"),
    [
        ("plot rain by date", ["weather"]),
        ("In which month was it?", ["sales"]),
        ("revenue per MONTH", ["sales"]),
        ("rain in each month", ["sales", "weather"]),
        ("month of weather", ["weather"]),  # a table that is named comes alone
        ("What is your name?", []),
        ("Thanks!", []),
    ],
)
def test_without_a_name_the_tables_are_those_whose_columns_the_prompt_names(prompt: str, tables: list[str]) -> None:
    namespace = {"weather": WEATHER, "sales": SALES, "_1": SALES, "month": 3}
    assert tables_mentioned(prompt, namespace) == tables


def test_a_table_with_two_names_is_described_once_and_the_newest_tables_come_first() -> None:
    frames = {f"df{number}": SALES.copy() for number in range(5)}
    assert tables_mentioned("revenue?", frames | {"same": frames["df4"]}) == ["same", "df3", "df2"]


def test_columns_with_the_same_name_are_each_described() -> None:
    told = summary("df", pd.DataFrame([[1, "x"]], columns=["a", "a"]))
    assert "a int64, a str" in told or "a int64, a object" in told
    assert "first row: a=1, a='x'" in told


def test_without_a_name_the_newest_tables_are_described_under_a_title_of_their_own() -> None:
    namespace = {"In": ["plot it"], "weather": WEATHER, "sales": SALES, "stock": SALES.copy(), "_3": WEATHER}
    title, *facts = describe_data("In what order do they come?", namespace)
    assert title == NEWEST
    assert [line.partition(":")[0] for line in facts if "DataFrame" in line] == ["stock", "sales"]
    assert describe_data("What is in weather?", namespace)[0] == NAMED
    assert describe_data("Hello", {"In": ["1"], "x": 3}) == []


def test_a_list_that_the_prompt_names_is_described() -> None:
    assert describe_data("What is the sum of numbers?", {"numbers": [1, 2]})[0] == NAMED


def test_labels_of_columns_that_are_no_text_are_not_asked_for_theirs() -> None:
    table = pd.DataFrame([[1, 2, 3]], columns=[Unknown(), 7, "rain"])
    assert tables_mentioned("rain of 7?", {"table": table}) == ["table"]


def test_a_function_of_the_notebook_is_described_by_its_source_if_the_prompt_names_it(tmp_path: Path) -> None:
    path = tmp_path / "cell.py"
    path.write_text("def net(gross):\n    return gross / 1.19\n")
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    assert describe_data("Please fix net.", namespace) == [
        NAMED,
        "net: function net(gross), defined by\n    def net(gross):\n        return gross / 1.19",
    ]
    path.unlink()
    linecache.clearcache()
    assert describe_data("Please fix net.", namespace)[1] == "net: function net(gross)"
    assert describe_data("Please fix dedent.", {"dedent": textwrap.dedent}) == []
