"""Tests ``%%agent -> name: type`` in JupyterLab: the line that reports the value, and the value in the next cell."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

COUNT = "df = pd.DataFrame({'mass': [1, 2, 3]})\nprint(f'Rows: {len(df)}')"
SCRIPT: list[dict[str, Any]] = [
    {"when": "count the rows", "calls": [{"name": "python", "arguments": {"code": COUNT}}]},
    {"when": "count the rows", "text": '{"value": 3}'},
    {"when": "in words", "text": "about forty"},
]
NOTEBOOKS = {"typed.ipynb": ["%%agent -> rows: int\ncount the rows", "rows + 1", "%%agent -> rows: int\nin words"]}


def test_a_cell_reports_the_variable_that_it_set_or_why_it_did_not(lab: Lab) -> None:
    lab.open("typed.ipynb")
    lab.run(0)
    expect(lab.cell(0)).to_contain_text("rows: int = 3 (computed)")
    lab.run(1)
    expect(lab.cell(1)).to_contain_text("4")
    lab.run(2)
    expect(lab.cell(2)).to_contain_text("The answer 'about forty' is not an int, so rows was not set.")
    lab.picture("typed-cells")
