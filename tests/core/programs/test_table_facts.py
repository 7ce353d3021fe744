"""Tests the statements that select the rows of values that a question names."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.table_facts import select_named_values

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
