"""Tests agent cells that run again in real JupyterLab: alone, edited, and by Run All. Screenshots are written to
build/screenshots.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

DRAW = "import matplotlib.pyplot as plt\nplt.figure(figsize=(4, 1.6))\nplt.plot([3, 1, 2])\nplt.title('Rain')"
SCRIPT: list[dict[str, Any]] = [
    {"when": "name a river", "text": "The **Rhine**."},
    {"when": "draw the rain", "calls": [{"name": "python", "arguments": {"code": DRAW}}]},
    {"when": "draw the rain", "text": "There is the rain."},
    {"when": "name a river", "text": "The **Danube**, then."},
    {"when": "name a lake", "text": "Lake *Constance*."},
    {"when": "draw the rain", "calls": [{"name": "python", "arguments": {"code": DRAW}}]},
    {"when": "draw the rain", "text": "The rain, anew."},
    {"text": "Nothing was prepared for this.", "loop": True},
]
CELLS = ["%%agent\nname a river", "1 + 1", "%%agent --in sandbox\ndraw the rain", "%agent branches"]
NOTEBOOKS = {"rivers.ipynb": CELLS}


def test_run_all_shows_stored_answers_and_a_cell_run_alone_is_another_version(lab: Lab) -> None:
    lab.open("rivers.ipynb")
    lab.run_all()
    expect(lab.cell(0)).to_contain_text("The Rhine.")
    picture = lab.cell(2).locator(".jp-RenderedImage img")
    expect(picture).to_be_visible()
    first_picture = picture.get_attribute("src")
    expect(lab.cell(0).get_by_text("Stored answer")).to_have_count(0)

    lab.run_all()
    for number in (0, 2):
        expect(lab.cell(number).get_by_text("nothing changed up to this cell, so no model was asked")).to_be_visible()
    expect(lab.cell(0)).to_contain_text("The Rhine.")
    assert picture.get_attribute("src") == first_picture
    lab.picture("run-all-shows-stored-answers")

    lab.run(0)
    expect(lab.cell(0)).to_contain_text("The Danube, then.")
    expect(lab.cell(0)).to_contain_text("1 later turn stays on the branch main. To return: %agent switch main")
    expect(lab.cell(0)).to_contain_text("version 2 of 2 · branch name-a-river · %agent versions shows the others")
    lab.picture("a-cell-run-again-is-a-version")

    lab.type_into(0, "%%agent\nname a lake")
    lab.run_all()
    expect(lab.cell(0)).to_contain_text("Lake Constance.")
    expect(lab.cell(0)).to_contain_text("version 3 of 3 · branch name-a-lake")
    expect(lab.cell(2)).to_contain_text("The rain, anew.")
    expect(lab.cell(2).get_by_text("Stored answer")).to_have_count(0)
    expect(lab.cell(3).locator("table")).to_contain_text("name-a-lake")
    lab.picture("an-edited-cell-and-what-follows-are-asked-anew")

    lab.restart_and_run_all()
    for number in (0, 2):
        expect(lab.cell(number).get_by_text("Stored answer")).to_be_visible()
    lab.picture("restart-and-run-all-shows-stored-answers")
