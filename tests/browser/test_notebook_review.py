"""Tests the review of the agent's proposed changes in the notebook, at the cells."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab, use_theme
from tests.browser.panel import ended, open_panel, say, shown_panel, violations
from tests.scripted import call_when
from tests.server import AgentServer

pytestmark = pytest.mark.browser


def edit(when: str, cell: str, find: str, replace: str) -> dict[str, Any]:
    return call_when(when, "edit_cell", cell=cell, find=find, replace=replace)


SCRIPT = [
    edit("tidy up", "cell-0", "df = 1", "df = [1, 2, 3]\nprint(df)"),
    edit("tidy up", "cell-1", "df", "sum(df)"),
    edit("tidy up", "cell-30", "x = 30", "raise SystemExit"),
    edit("tidy up", "cell-2", "x = 2", "mean = sum(df) / 2"),
    call_when("tidy up", "insert_cell", source="# Result", type="markdown", below="cell-1"),
    {"when": "tidy up", "text": "Tidy."},
    *(edit("rename all", f"cell-{n}", f"x = {n}", f"y = {n}\nz = {n}") for n in (3, 4, 20, 35)),
    {"when": "rename all", "text": "Renamed."},
    {"text": "ok", "loop": True},
]
NOTEBOOKS = {"rain.ipynb": ["df = 1", "df", *(f"x = {n}" for n in range(2, 40))]}
OWN = (".ak-cell-review", ".ak-review-bar", ".ak-agent-mark")
"""What a review draws into the notebook."""
SHARED = "jupyterapp.shell.currentWidget.content.model.sharedModel"
CHANNELS = "button => getComputedStyle(button).backgroundColor.match(/\\d+/g).map(Number)"
"""Red, green and blue of the background."""


def cards(lab: Lab) -> Locator:
    return lab.page.locator(".jp-Notebook .ak-cell-review")


def bar(lab: Lab) -> Locator:
    return lab.page.get_by_role("region", name="Changes by the agent")


def source(lab: Lab, cell: str) -> str:
    return str(lab.page.evaluate(f"id => {SHARED}.cells.find(cell => cell.id === id)?.getSource() ?? ''", cell))


def saved_cells(server: AgentServer) -> dict[str, Any]:
    cells = json.loads((server.root / "rain.ipynb").read_text())["cells"]
    return {cell["id"]: cell for cell in cells}


def test_a_person_reviews_five_changes_without_leaving_the_notebook(lab: Lab, server: AgentServer) -> None:
    page = lab.page
    panel = open_panel(lab)
    say(panel, "tidy up")
    card = cards(lab)
    expect(card).to_contain_text("Change this cell?", timeout=SLOW_MS)
    expect(lab.cell(0)).to_contain_text("print(df)")
    expect(panel.locator(".ak-approval")).to_contain_text("Change cell 1?")
    row = panel.locator(".ak-call[data-status=waiting] > .ak-row")
    assert row.evaluate("row => row.scrollWidth <= row.clientWidth"), "its end is cut"
    lab.picture("review-light")
    assert violations(page, OWN) == []
    card.get_by_role("button", name="Accept").click()

    expect(lab.cell(1).locator(".ak-cell-review")).to_be_focused(timeout=SLOW_MS)  # handed on from the first card
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Accept")).to_be_focused()
    page.keyboard.press("Enter")

    expect(card).to_contain_text("SystemExit", timeout=SLOW_MS)
    expect(card).to_be_in_viewport()
    panel.get_by_role("button", name="Reject").click()  # in the panel: the cell's card goes as well
    expect(card).to_contain_text("mean =", timeout=SLOW_MS)
    expect(card).to_be_in_viewport()

    use_theme(page, "JupyterLab Dark")
    accept = card.get_by_role("button", name="Accept")
    accept.hover()
    assert accept.evaluate(CHANNELS)[2] > 150, "it stays blue, so that its words are seen"
    card.get_by_role("button", name="Edit").click()
    field = card.get_by_label("The text that the cell gets")
    expect(field).to_be_focused()
    field.fill("mean = 1\u202e")
    expect(card).to_contain_text("invisible characters: U+202E")
    expect(card.get_by_role("button", name="Accept")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(card.get_by_role("button", name="Edit")).to_be_focused()
    page.keyboard.press("Enter")
    field.fill("mean = sum(df) / len(df)")
    lab.picture("review-edit-dark")
    assert violations(page, OWN) == []
    page.keyboard.press("Control+Enter")

    expect(card).to_contain_text("Add a Markdown cell here?", timeout=SLOW_MS)
    lab.picture("review-insert-dark")
    card.get_by_role("button", name="Accept").click()
    turn = panel.locator(".ak-turn").last
    ended(turn)
    expect(card).to_have_count(0)
    assert [source(lab, f"cell-{n}") for n in (0, 1, 2, 30)] == [
        "df = [1, 2, 3]\nprint(df)",
        "sum(df)",
        "mean = sum(df) / len(df)",
        "x = 30",
    ]
    expect(turn).to_contain_text("You changed it and approved it")
    expect(bar(lab)).to_contain_text("4 cells changed")
    lab.save()
    changed = saved_cells(server)["cell-2"]["metadata"]
    assert sorted(changed) == ["agent_kernel"]
    assert sorted(changed["agent_kernel"]) == ["accepted", "call", "edited", "turn"]
    assert "ak-" not in (server.root / "rain.ipynb").read_text()

    mark = lab.cell(0).get_by_role("button", name="Changed by the agent")
    page.get_by_role("tab", name="Agent", exact=True).click()
    expect(panel).to_be_hidden()
    mark.hover()
    expect(lab.cell(0)).to_contain_text("“tidy up”")
    lab.picture("review-mark-dark")
    assert violations(page, OWN) == []
    mark.click()
    expect(turn).to_be_focused()
    expect(turn.locator(".ak-facts")).to_contain_text("3 cells changed\u00a0· 1 cell added")

    bar(lab).get_by_role("button", name="Undo changes").click()
    expect(bar(lab)).to_contain_text("Undone in 4 cells.")
    expect(turn.locator(".ak-facts")).not_to_contain_text("cell")
    assert [source(lab, f"cell-{n}") for n in (0, 1, 2)] == ["df = 1", "df", "x = 2"]
    expect(lab.page.locator(".ak-agent-mark")).to_have_count(0)
    bar(lab).get_by_role("button", name="Close").click()
    expect(bar(lab)).to_have_count(0)


def test_reviews_stay_at_their_cells_in_a_windowed_notebook(lab: Lab, server: AgentServer) -> None:
    """While it is scrolled, saved, changed by somebody else and loaded again."""
    settings = server.directory / "config" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "full"}')
    page = lab.page
    panel = open_panel(lab)
    say(panel, "rename all")
    panel.get_by_role("button", name="Always in this conversation").click(timeout=SLOW_MS)
    ended(panel.locator(".ak-turn").last)
    expect(bar(lab)).to_contain_text("4 cells changed · 3 changes to review", timeout=SLOW_MS)
    assert page.locator(".jp-Notebook .jp-Cell:visible").count() < 30
    expect(cards(lab).first).to_contain_text("z = 4")

    after = bar(lab).get_by_role("button", name="Next change")
    for text in ("z = 20", "z = 35", "z = 4", "z = 20"):
        after.click()
        expect(cards(lab).filter(has_text=text)).to_be_focused()
    shown = cards(lab).filter(has_text="z = 20")
    page.evaluate(f"() => {SHARED}.cells[0].setSource('df = 2 # of somebody else')")
    page.evaluate(f"() => {SHARED}.moveCell(20, 22)")
    expect(shown).to_be_visible()
    page.evaluate(f"() => {SHARED}.insertCell(0, {{cell_type: 'code', source: 'first = 1'}})")
    lab.save()
    expect(shown).to_be_visible()
    assert "ak-" not in (server.root / "rain.ipynb").read_text()

    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    shown_panel(page)
    expect(bar(lab)).to_contain_text("3 changes to review", timeout=SLOW_MS)
    after.click()
    expect(cards(lab).filter(has_text="z = 4")).to_be_focused()
    lab.picture("review-many")
    cards(lab).filter(has_text="z = 4").get_by_role("button", name="Reject").click()
    expect(bar(lab)).to_contain_text("2 changes to review")
    assert source(lab, "cell-4") == "x = 4"
    bar(lab).get_by_role("button", name="Accept all").click()
    expect(cards(lab)).to_have_count(0)
    lab.save()
    assert saved_cells(server)["cell-20"]["metadata"]["agent_kernel"]["accepted"] is True
