"""Tests the panel beside the cells of its notebook: what it shows of their turns, and which context it sends with a
message.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import PNG, ask, ended, open_panel, say, shown_panel, use_kernel
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser

SHOW = f"""from IPython.display import HTML, Image, display
import base64, pandas
display(Image(data=base64.b64decode('{base64.b64encode(PNG).decode()}')))
display(HTML('<h3>Rain in <i>May</i></h3><script>window.hit = 1</script><img src=x onerror="window.hit = 2">'))
pandas.DataFrame({{'millimetres': [1, 22]}})"""
SCRIPT: list[dict[str, Any]] = [
    {"when": "show it", "calls": [{"name": "python", "arguments": {"code": SHOW}}]},
    {"when": "show it", "text": "There it is."},
    {"when": "show it", "calls": [{"name": "python", "arguments": {"code": SHOW}}]},
    {"when": "show it", "text": "There it is."},
    {"when": "count it", "calls": [{"name": "python", "arguments": {"code": "total = 6 * 7"}}]},
    {"when": "count it", "text": "It is counted."},
    {"when": "count it", "calls": [{"name": "python", "arguments": {"code": "total = 6 * 8"}}]},
    {"when": "count it", "text": "It is counted."},
    {"text": "ok", "loop": True},
]
COUNT = "%%agent\ncount it as total"
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
NOTEBOOKS = {"rain.ipynb": ["%%agent\nshow it", "%agent help", SLEEP, "1/0", COUNT]}


def is_drawn(turn: Locator) -> None:
    """Check that the panel shows the picture and the table as the cell does, and that no script ran."""
    expect(turn.locator("figure[data-mime='image/png'] img")).to_be_visible(timeout=SLOW_MS)
    expect(turn.locator("figure td", has_text="22")).to_be_visible(timeout=SLOW_MS)
    assert turn.page.evaluate("() => window.hit") is None


def test_what_a_call_shows_is_in_the_panel_at_once_and_after_a_reload(lab: Lab) -> None:
    panel = open_panel(lab)
    lab.run(0)
    expect(lab.output(0).locator("td", has_text="22")).to_be_visible(timeout=SLOW_MS)
    turns = panel.locator(".ak-turn")
    is_drawn(turns.first)
    say(panel, "show it again")
    once = panel.get_by_role("button", name="Run once", exact=True)
    expect(once.or_(panel.get_by_text("There it is.").nth(1))).to_be_visible(timeout=SLOW_MS)
    if once.is_visible():
        once.click()
    ended(turns.last)
    is_drawn(turns.last)
    turns.last.scroll_into_view_if_needed()
    lab.picture("panel-shows-bundles")
    lab.page.reload()
    lab.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    panel = shown_panel(lab.page)
    for turn in (turns.first, turns.last):
        is_drawn(turn)


def test_a_stop_and_cells_that_talk_to_the_agent_are_no_context_of_a_message(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    lab.run(2, wait=False)
    expect(lab.output(2)).to_contain_text("begun", timeout=SLOW_MS)
    lab.interrupt()
    expect(lab.output(2).last).to_contain_text("KeyboardInterrupt", timeout=SLOW_MS)
    lab.run(1)
    lab.cell(1).locator(".cm-content").first.click()
    lab.page.wait_for_timeout(500)
    expect(panel.get_by_role("list", name="Attachments of this message")).to_have_count(0)
    ended(ask(panel, "hello"))
    lab.run(3)
    lab.cell(1).locator(".cm-content").first.click()
    along = panel.get_by_role("list", name="Attachments of this message").get_by_role("listitem")
    expect(along).to_have_text(["error of cell 4"])
    lab.picture("panel-context")
    ended(ask(panel, "why?"))
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        session = client.get("agent/v1/binding?path=rain.ipynb").json()["session"]["id"]
        turns = client.get(f"agent/v1/sessions/{session}/turns").json()["turns"]
        items = client.get(f"agent/v1/sessions/{session}/items").text
    assert [turn["context"] for turn in turns] == [[], ["error of cell 3"]]
    assert "ZeroDivisionError" in items
    assert "KeyboardInterrupt" not in items
    assert "%agent" not in items


def test_needs_your_answer_in_the_status_bar_goes_to_the_question(lab: Lab) -> None:
    page = lab.page
    panel = use_kernel(open_panel(lab))
    status = page.get_by_role("button", name="Agent: needs your answer")
    turn = ask(panel, "count it")
    card = turn.locator(".ak-approval")
    expect(card).to_be_visible(timeout=SLOW_MS)
    expect(turn.locator(".ak-facts")).to_contain_text("Needs your answer")
    lab.picture("status-asks-panel")
    page.get_by_role("tab", name="Agent", exact=True).click()
    expect(panel).to_be_hidden()
    lab.cell(0).locator(".cm-content").first.click()
    status.click()
    expect(card).to_be_focused()
    page.wait_for_timeout(700)  # a card counts no keys in the moment after the focus came
    page.keyboard.press("a")
    ended(turn)
    expect(status).to_have_count(0)

    lab.run(4, wait=False)
    box = lab.cell(4).locator(".jp-Stdin-input")
    expect(box).to_be_visible(timeout=SLOW_MS)  # whether it is kept: only the cell asks that
    expect(panel.locator(".ak-approval")).to_have_count(0)
    expect(panel.get_by_text("Its cell needs your answer.")).to_be_visible()
    lab.cell(0).locator(".cm-content").first.click()
    lab.picture("status-asks-cell")
    status.click()
    expect(box).to_be_focused()
    lab.answer("y")
    lab.wait_idle()
    expect(lab.output(4).filter(has_text="It is counted.")).to_be_visible()
    expect(status).to_have_count(0)
