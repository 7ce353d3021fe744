"""Tests the button "Fix with agent" below the output of a failed cell, and the correction that it proposes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from agent_kernel.notebook.draft import jail
from tests.browser.lab import SLOW_MS, Lab, lab_server, use_theme
from tests.browser.panel import violations
from tests.server import AgentServer

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())]

BROKEN = "prices = [4, 8]\nmean = sum(prices) / count\nprint('mean', mean)"
RIGHT = BROKEN.replace("count", "len(prices)")


def correction_script(when: str, code: str) -> list[dict[str, Any]]:
    calls = [{"name": "python", "arguments": {"code": code}}]
    return [{"when": when, "calls": calls}, {"when": when, "text": "The name was not defined."}]


SCRIPT: list[dict[str, Any]] = [
    *correction_script("'count' is not defined", RIGHT),
    {"when": "'none' is not defined", "calls": [{"name": "python", "arguments": {"code": "print('no sum')"}}]},
    {"when": "'none' is not defined", "text": "I found nothing."},
    *correction_script("'again' is not defined", "again = 1\nagain"),
    {"text": "Anything.", "loop": True},
]
CELLS = [BROKEN, "print(none + 1)", "%agent fix In[99]", "again"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    with lab_server(tmp_path, SCRIPT, {"fixes.ipynb": CELLS}) as server:
        yield server


def button(lab: Lab, cell: int) -> Locator:
    return lab.cell(cell).get_by_role("button", name="Fix with agent")


def test_a_failed_cell_is_corrected_from_its_traceback_and_changes_when_the_person_accepts(
    lab: Lab, server: AgentServer
) -> None:
    page = lab.page
    lab.open("fixes.ipynb")
    lab.run(0)
    lab.run(2)
    expect(button(lab, 0)).to_have_count(1, timeout=30_000)
    expect(button(lab, 2)).to_have_count(0)
    lab.picture("fix-button")
    button(lab, 0).focus()
    page.keyboard.press("Enter")
    card = page.get_by_role("group", name="Correction of cell 1")
    expect(card).to_contain_text("mean = sum(prices) / len(prices)", timeout=60_000)
    expect(card).to_contain_text("it ran in a draft without the error")
    expect(lab.cell(0).locator(".cm-content")).to_contain_text("/ count")
    expect(card).to_contain_text("mean 6.0")
    lab.picture("fix-proposed")
    use_theme(page, "JupyterLab Dark")
    lab.picture("fix-proposed-dark")

    expect(page.get_by_role("button", name="Leave out error of cell 1")).to_have_count(0)
    page.keyboard.press("Alt+Enter")
    expect(card.locator("summary")).to_be_focused()
    at_cell = lab.cell(0).get_by_role("group", name="Change this cell?")
    expect(at_cell).to_contain_text("mean = sum(prices) / len(prices)")
    expect(at_cell).to_contain_text("This correction ran in a draft without the error.")
    assert violations(page, (".ak-cell-review", ".ak-review-bar")) == []
    card.get_by_role("button", name="Accept").focus()
    page.keyboard.press("Enter")
    expect(at_cell).to_have_count(0)
    expect(lab.cell(0).locator(".cm-content")).to_contain_text("/ len(prices)")
    expect(card).to_contain_text("accepted")
    expect(card.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    card.get_by_role("button", name="Undo").click()
    expect(lab.cell(0).locator(".cm-content")).to_contain_text("/ count")
    at_cell.get_by_role("button", name="Accept").click()
    expect(card).to_contain_text("accepted")
    lab.run(0)
    expect(lab.output(0).first).to_contain_text("mean 6.0")
    expect(button(lab, 0)).to_have_count(0)


def test_where_no_correction_ran_the_panel_says_so_and_a_rejected_one_changes_nothing(
    lab: Lab, server: AgentServer
) -> None:
    page = lab.page
    lab.open("fixes.ipynb")
    lab.run(1)
    button(lab, 1).click()
    panel = page.locator(".agent-kernel-side")
    expect(panel).to_contain_text("No corrected cell ran without an error", timeout=60_000)
    expect(page.get_by_role("group", name="Correction of cell 2")).to_have_count(0)
    lab.run(3)
    expect(panel).to_contain_text("error of cell 4", timeout=SLOW_MS)
    panel.get_by_label("Message to the agent").fill("/fix")
    page.keyboard.press("Enter")
    card = page.get_by_role("group", name="Correction of cell 4")
    expect(card).to_be_visible(timeout=60_000)
    lab.cell(3).get_by_role("group", name="Change this cell?").get_by_role("button", name="Reject").click()
    expect(card).to_have_count(0)
    expect(panel).to_contain_text("The correction of cell 4 was rejected.")
    expect(lab.cell(3).locator(".cm-content")).to_have_text("again")

    turn = panel.locator(".ak-turn").last
    turn.hover()
    turn.get_by_role("button", name="Edit", exact=True).click()
    message = panel.get_by_label("Message to the agent")
    expect(message).to_have_value("Correct cell [2], which failed with NameError: name 'again' is not defined")
