"""Changes that the agent proposes are reviewed in the notebook, at the cells."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import ended, open_panel, say
from tests.server import AgentServer

pytestmark = pytest.mark.browser


def call(when: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"when": when, "calls": [{"name": name, "arguments": arguments}]}


SCRIPT = [
    call("tidy up", "edit_cell", cell="cell-0", find="df = 1", replace="df = [1, 2, 3]\nprint(df)"),
    call("tidy up", "edit_cell", cell="cell-1", find="df", replace="sum(df)"),
    call("tidy up", "edit_cell", cell="cell-30", find="x = 30", replace="raise SystemExit"),
    call("tidy up", "edit_cell", cell="cell-2", find="x = 2", replace="mean = sum(df) / 2"),
    call("tidy up", "insert_cell", source="# Result", type="markdown", below="cell-1"),
    {"when": "tidy up", "text": "Tidy."},
    {"text": "ok", "loop": True},
]
NOTEBOOKS = {"rain.ipynb": ["df = 1", "df", *(f"x = {n}" for n in range(2, 40))]}


def card(lab: Lab) -> Locator:
    return lab.page.locator(".jp-Notebook .ak-cell-review")


def test_first(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    lab.page.on("console", lambda message: print(message.type, message.text) if message.type == "error" else None)
    lab.page.on("pageerror", lambda error: print("PAGEERROR", error))
    say(panel, "tidy up")
    expect(card(lab)).to_be_visible(timeout=SLOW_MS)
    lab.picture("review-edit")
    card(lab).get_by_role("button", name="Accept").click()
    expect(card(lab)).to_contain_text("sum(df)", timeout=SLOW_MS)
    card(lab).get_by_role("button", name="Accept").click()
    expect(card(lab)).to_contain_text("SystemExit", timeout=SLOW_MS)
    lab.page.wait_for_timeout(800)
    lab.picture("review-far")
    card(lab).get_by_role("button", name="Reject").click()
    expect(card(lab)).to_contain_text("mean", timeout=SLOW_MS)
    card(lab).get_by_role("button", name="Edit").click()
    lab.page.wait_for_timeout(300)
    lab.picture("review-editing")
    lab.page.keyboard.press("Control+a")
    lab.page.keyboard.insert_text("mean = sum(df) / len(df)")
    lab.page.keyboard.press("Control+Enter")
    expect(card(lab)).to_contain_text("Result", timeout=SLOW_MS)
    lab.picture("review-insert")
    card(lab).get_by_role("button", name="Accept").click()
    ended(panel.locator(".ak-turn").last)
    lab.page.wait_for_timeout(500)
    lab.picture("review-done")
