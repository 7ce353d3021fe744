"""Tests the statements that select the rows of values that a question names, and those that make a long table."""

from __future__ import annotations

import pandas as pd
import pytest

from agent_kernel.core.programs.table_facts import long_table, select_named_values

LEVELS = [
    "Files: app.log: log read by pd.Series(open('app.log').read().splitlines())"
    ".str.extract(r'(?P<level>\\w+) (?P<part>.*)'), 51 rows x 2 columns: level str, part str\n"
    "    level values: INFO, ERROR\n    part values: db, web"
]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("Which part has the most errors?", "app_errors = app[app['level'] == 'ERROR']\n"),
        ("How many with level ERROR?", ""),
        ("Is terror a level?", ""),
    ],
)
def test_the_rows_of_a_value_that_is_named_in_another_form_are_selected(question: str, code: str) -> None:
    assert select_named_values(question, "app", LEVELS) == code


WIDE = "sales has one column for each month: ['Jan', 'Feb', 'May']. Its other columns are ['value', 'shop']."


def test_a_table_with_one_column_for_each_period_gets_one_row_for_each() -> None:
    names = {"pd": pd, "sales": pd.DataFrame({"value": [1, 2], "shop": ["a", "b"], "Jan": 3, "Feb": 4, "May": 5})}
    exec(long_table("Which month may be the best?", "sales", [WIDE]), names)
    long = names["sales_long"]
    assert isinstance(long, pd.DataFrame)
    assert list(long.columns) == ["value", "shop", "month", "amount"]
    # Months are in the order of their columns, and not in that of the alphabet.
    assert long.groupby("month", observed=True)["amount"].sum().to_dict() == {"Jan": 6, "Feb": 8, "May": 10}
    assert list(long.sort_values("month")["month"].unique()) == ["Jan", "Feb", "May"]


@pytest.mark.parametrize(
    ("question", "table", "facts"),
    [
        ("How much in feb?", "sales", [WIDE]),
        ("How much in May?", "sales", [WIDE]),
        ("Make it a long table.", "sales", [WIDE]),
        ("Which month?", "costs", [WIDE, WIDE.replace("sales", "other")]),
        ("Which month?", "sales", ["    " + WIDE]),
        ("Which month?", "sales", [WIDE.replace("'Feb'", "__import__('os')")]),
        ("Which month?", "sales", [WIDE.replace("'Feb'", "2")]),
        ("Which month?", "sales", [WIDE.replace("['value', 'shop']", "[" * 200 + "]" * 200)]),
    ],
    ids=[
        "a month in lower case",
        "May",
        "a form of the table",
        "another table",
        "a line of a file",
        "a call",
        "a number",
        "a deep list",
    ],
)
def test_no_long_table_is_made(question: str, table: str, facts: list[str]) -> None:
    assert long_table(question, table, facts) == ""
