"""Tests plotting, saving and using a user's data with an agent that may read it without asking. Real JupyterLab, real
Chromium.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.scripted import call_when

pytestmark = pytest.mark.browser

DATA = """import pandas as pd
df = pd.DataFrame({'month': list(range(1, 13)) * 2, 'rain': [5, 3, 4, 2, 1, 0, 0, 1, 2, 4, 6, 7] * 2})"""
PLOT = "df.groupby('month').rain.mean().plot.bar(figsize=(5, 2.5), title='Rain by month')"
SAVE = "monthly = df.groupby('month', as_index=False).rain.mean()\nmonthly.head(3)"
CELLS = [DATA, "%%agent\nplot df by month", "%%agent\nsave the monthly means as monthly", "monthly.head()"]
NOTEBOOKS = {"rain.ipynb": CELLS}
DARK = True


SCRIPT: list[dict[str, Any]] = [
    call_when("plot df by month", "python", code=PLOT),
    {"when": "plot df by month", "text": "The rain of each month; **December** has the most."},
    call_when("save the monthly means", "python", code=SAVE),
    {"when": "save the monthly means", "text": "`monthly` has the mean rain of each month."},
]


def test_plot_save_and_use_need_one_answer_and_no_flag(lab: Lab) -> None:
    lab.open("rain.ipynb")
    lab.run(0)

    lab.run(1)
    expect(lab.cell(1).locator("summary", has_text="python in a draft")).to_contain_text("changes nothing) · done")
    expect(lab.cell(1).locator(".jp-RenderedImage img")).to_be_visible()
    assert lab.page.locator(".jp-Stdin-input").count() == 0, "to look needs no leave"
    lab.picture("draft-plot")

    lab.run(2, wait=False)
    asked = lab.cell(2).locator("details", has_text="waiting for your answer")
    expect(asked).to_have_attribute("open", "", timeout=30_000)
    expect(asked).to_contain_text("monthly = df.groupby('month', as_index=False).rain.mean()")
    expect(lab.cell(2).locator(".jp-Stdin-prompt")).to_contain_text("Keep monthly in your kernel?")
    lab.picture("draft-asks-to-keep")
    lab.answer("y")
    lab.wait_idle()
    expect(lab.cell(2).locator("summary", has_text="your kernel has it now")).to_be_visible()
    lab.picture("draft-kept")

    lab.run(3)
    expect(lab.output(3).locator("table")).to_contain_text("rain")
    assert lab.output(3).locator("tbody tr").count() == 5
    lab.picture("draft-used")
