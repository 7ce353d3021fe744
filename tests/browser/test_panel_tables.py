"""Tests tables and pictures of a call in the panel: sorting, paging, enlarging, and copying as a cell. Screenshots are
written to build/screenshots.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab, use_theme
from tests.browser.panel import ask, ended, open_panel, violations

pytestmark = pytest.mark.browser

DRAW = """import matplotlib.pyplot as plt
plt.figure(figsize=(12, 10), dpi=150)
plt.plot([3, 1, 2])
plt.title("Rain")
plt.show()
"""
SHOW = """import pandas as pd
rain = pd.DataFrame({"day": pd.date_range("2024-05-01", periods=45), "mm": [(7 * n) % 45 for n in range(45)]})
rain["note"] = "dry, a little wind from the north"
rain
"""
SCRIPT: list[dict[str, Any]] = [
    {"when": "how much", "calls": [{"name": "python", "arguments": {"code": DRAW}}]},
    {"when": "how much", "calls": [{"name": "python", "arguments": {"code": SHOW}}]},
    {
        "when": "how much",
        "text": "The result:\n\n              day  mm  note\n    0  2024-05-01   0  dry, a little wind from the north",
    },
    {"text": "ok", "loop": True},
]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}


def look(lab: Lab, name: str, *themes: str) -> None:
    """Take a screenshot in each theme, and check that axe finds no violation."""
    for theme in themes:
        use_theme(lab.page, THEMES[theme])
        lab.picture(f"tables-{name}-{theme}")
        assert violations(lab.page) == [], theme


def has_column(table: Locator, number: int, numbers: range) -> None:
    expect(table.locator(f"tbody tr > :nth-child({number})")).to_have_text([str(n) for n in numbers])


def test_a_table_is_sorted_and_paged_a_picture_enlarged_and_both_are_copied_as_cells(lab: Lab) -> None:
    panel = open_panel(lab)
    turn = ask(panel, "how much did it rain?")
    ended(turn)
    table = turn.locator(".ak-media", has=lab.page.locator("table"))
    expect(turn.get_by_text("The result is the table above.")).to_be_visible()
    expect(turn.locator(".ak-markdown")).to_have_count(0)
    sort_by_rain(lab, table)
    look(lab, "table", *THEMES)

    picture = turn.locator(".ak-media[data-mime='image/png']")
    enlarge(lab, picture)

    copy_as_cell(lab, table, "rain = pd.DataFrame")
    copy_as_cell(lab, picture, "plt.plot([3, 1, 2])")
    lab.cell(1).locator(".jp-InputPrompt").click()
    for left in (3, 2):
        lab.page.keyboard.press("z")
        expect(lab.page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(left)


def sort_by_rain(lab: Lab, table: Locator) -> None:
    """Sort the table by the column ``mm`` with the keyboard alone."""
    expect(table.get_by_text("Rows 1 to 20 of 45")).to_be_visible(timeout=SLOW_MS)
    head = table.get_by_role("columnheader", name="mm")
    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").focus()
    lab.page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    has_column(table, 3, range(20))
    following = table.get_by_role("button", name="Next rows")
    following.focus()
    lab.page.keyboard.press("Enter")
    has_column(table, 3, range(20, 40))
    lab.page.keyboard.press("Enter")
    lab.page.keyboard.press("Enter")
    expect(following).to_be_focused()
    expect(table.get_by_role("status").first).to_have_text("Rows 41 to 45 of 45")
    head.get_by_role("button").focus()
    lab.page.keyboard.press("Space")
    expect(head).to_have_attribute("aria-sort", "descending")
    has_column(table, 3, range(44, 24, -1))
    lab.page.keyboard.press("Space")
    has_column(table, 1, range(20))


def enlarge(lab: Lab, picture: Locator) -> None:
    button = picture.get_by_role("button", name="Enlarge")
    button.focus()
    lab.page.keyboard.press("Enter")
    dialog = lab.page.get_by_role("dialog")
    image = dialog.get_by_role("img")
    expect(image).to_have_attribute("alt", "Draw a line chart: Rain")
    size, natural = image.bounding_box(), image.evaluate("one => [one.naturalWidth, one.naturalHeight]")
    assert size is not None
    assert size["width"] <= lab.page.evaluate("innerWidth")
    assert size["height"] <= lab.page.evaluate("innerHeight")
    assert size["height"] < natural[1], "the picture is larger than the window"
    look(lab, "picture", "dark")
    dialog.get_by_role("button", name="Actual size").press("Enter")
    assert image.evaluate("one => [one.width, one.height]") == natural
    look(lab, "picture-actual", "light")
    image.click()
    expect(dialog.get_by_role("button", name="Actual size")).to_be_visible()
    lab.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def copy_as_cell(lab: Lab, medium: Locator, source: str) -> None:
    """Copy the medium as a cell, and check that the cell is inserted below the active one."""
    cells = lab.page.locator(".jp-Notebook .jp-CodeCell")
    before = cells.count()
    medium.get_by_role("button", name="Copy as cell").press("Enter")
    expect(medium.get_by_text("Inserted")).to_be_visible()
    expect(cells).to_have_count(before + 1)
    expect(lab.page.locator(".jp-Notebook .jp-CodeCell.jp-mod-active .cm-content")).to_contain_text(source)
