"""Tests that tables with one column for each period are recognised."""

from __future__ import annotations

import pytest

from agent_kernel.core.file_facts.wide_table import describe_wide_table


@pytest.mark.parametrize(
    ("labels", "period"),
    [
        (["Jan", "Feb", "Mar"], "month"),
        (["January 2024", "February 2024", "March 2024"], "month"),
        (["2024-01", "2024-02", "2024-03"], "month"),
        (["Jänner", "Februar", "März"], ""),
        (["Januar", "Februar", "März"], "month"),
        (["2018", "2019", "2021"], "year"),
        (["Q1", "Q2", "Q3", "Q4"], "quarter"),
        (["2024 Q1", "2024 Q2", "2024 Q3"], "quarter"),
        (["KW 1", "KW 2", "KW 3"], "week"),
        (["Mon", "Tue", "Wed", "Thu"], "weekday"),
        (["Jan", "Feb"], ""),
        (["height", "weight", "age"], ""),
    ],
)
def test_columns_with_periods_are_recognised_by_their_labels(labels: list[str], period: str) -> None:
    told = describe_wide_table("t", ["store", *labels, "Total"], [*labels, "Total"])
    expected = f"t has one column for each {period}: {labels!r}. Its other columns are ['store']." if period else ""
    assert told == expected


def test_a_table_with_other_numbers_is_not_wide() -> None:
    years = ["2018", "2019", "2020"]
    assert describe_wide_table("t", ["store", *years, "staff"], [*years, "staff"]) == ""
    assert describe_wide_table("t", ["id", "store", *years], ["id", *years]) != ""
    assert describe_wide_table("t", years, years) == ""
