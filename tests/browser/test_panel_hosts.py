"""Tests the panel in its hosts: beside a notebook in JupyterLab and Notebook 7, and in a cell's output. Screenshots are
written to build/screenshots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.lab import Lab, lab_server, wait_until, write_notebook
from tests.browser.panel import say
from tests.server import LABEXTENSIONS, TOKEN, AgentServer

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, Any]] = [
    {"when": "Correct the cell", "calls": [{"name": "python", "arguments": {"code": "print(1 / 1)"}}]},
    {"when": "Correct the cell", "text": "Divide by **one**."},
    {"when": "a long story", "text": "word " * 2_000, "deltas": 2_000, "delay": 0.05},
    {"when": "another story", "text": "tale " * 2_000, "deltas": 2_000, "delay": 0.05},
    {"when": "by the kernel", "text": "Said by way of the kernel."},
    {"when": "by the server", "text": "Said by way of the server."},
    {"when": "in Notebook 7", "text": "Here as well.\n\n```mermaid\nflowchart LR\n  A --> B\n```"},
    {"when": "nobody looks", "text": "word " * 60 + "The end.", "deltas": 60, "delay": 0.05},
    {"text": "ok", "loop": True},
]
CELLS = [
    "1 / 0",
    "%agent panel",
    "from agent_kernel import ChatPanel\nChatPanel(way='kernel', height=400)",
    "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.1)",
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    options = (f"--JupyterNotebookApp.extra_labextensions_path={LABEXTENSIONS}",)
    notebooks = {"hosts.ipynb": CELLS}
    with lab_server(tmp_path, SCRIPT, notebooks, options=options, extensions=("notebook",)) as server:
        yield server


def kernel_is_idle(server: AgentServer) -> bool:
    """Return True if the only kernel has run all cells that it was sent."""
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        (kernel,) = client.get("api/kernels").json()
    return bool(kernel["execution_state"] == "idle")


def side(page: Page) -> Locator:
    return page.locator(".agent-kernel-side").get_by_role("region", name="Agent", exact=True)


def test_a_panel_in_a_cell_talks_while_the_kernel_is_busy_or_by_way_of_the_kernel(
    lab: Lab, server: AgentServer
) -> None:
    lab.open("hosts.ipynb")
    lab.run(1)
    panel = lab.cell(1).get_by_role("region", name="Agent", exact=True)
    say(panel, "by the server")
    expect(panel.get_by_role("log")).to_contain_text("Said by way of the server.", timeout=30_000)

    lab.run(2)
    through_kernel = lab.cell(2).get_by_role("region", name="Agent", exact=True)
    expect(through_kernel.get_by_role("log")).to_contain_text("Said by way of the server.", timeout=30_000)
    say(through_kernel, "by the kernel")
    expect(through_kernel.get_by_role("log")).to_contain_text("Said by way of the kernel.", timeout=30_000)
    expect(panel.get_by_role("log")).to_contain_text("Said by way of the kernel.", timeout=30_000)
    lab.picture("panel-in-a-cell")

    say(through_kernel, "a long story")
    expect(through_kernel.get_by_role("log")).to_contain_text("word word", timeout=30_000)
    lab.run(3, wait=False)
    expect(lab.cell(3).locator(".jp-InputPrompt")).to_have_text("[*]:")
    said = through_kernel.get_by_role("log").inner_text().count("word")
    expect(panel.get_by_role("log")).to_contain_text("word " * (said + 5))
    panel.get_by_role("button", name="Stop").first.click()
    for one in (panel, through_kernel):
        expect(one.locator(".ak-turn").last).to_have_attribute("data-state", "cancelled", timeout=30_000)
    (server.root / "go").touch()


def test_commands_of_the_notebook_reach_the_agent_and_stop_works_while_the_kernel_is_busy(
    lab: Lab, server: AgentServer
) -> None:
    page = lab.page
    lab.open("hosts.ipynb")
    lab.run(0)
    lab.output(0).click(button="right")
    page.get_by_text("Agent: Fix").click()
    log = side(page).get_by_role("log")
    expect(log).to_contain_text("Correct cell [1], which failed with ZeroDivisionError", timeout=30_000)
    expect(log).to_contain_text("Divide by one.", timeout=30_000)
    expect(log.get_by_role("group", name="Correction of cell 1")).to_contain_text("print(1 / 1)", timeout=30_000)
    lab.picture("panel-fixes-an-error")

    lab.run(3, wait=False)
    page.keyboard.press("Control+Shift+L")
    expect(side(page).get_by_label("Message to the agent")).to_be_focused()
    say(side(page), "a long story")
    expect(log).to_contain_text("word word", timeout=30_000)
    status = page.locator(".ak-status")
    expect(status).to_have_text("Agent: working")
    lab.picture("panel-while-the-kernel-is-busy")
    page.locator(".jp-SideBar .lm-TabBar-tab[data-id='agent-kernel-panel']").click()
    expect(side(page)).not_to_be_visible()
    status.click()
    expect(side(page)).to_be_visible()
    page.keyboard.press("Control+.")
    expect(side(page).locator(".ak-turn").last).to_have_attribute("data-state", "cancelled", timeout=30_000)
    expect(status).not_to_be_visible()

    lab.cell(0).locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input").fill("Ask about the Selection")
    page.keyboard.press("Enter")
    expect(side(page)).to_contain_text("Selected in cell 1")
    (server.root / "go").touch()


def menu_item(page: Page, menu: str, item: str) -> Locator:
    """Open a menu and return one of its items. A second click on the menu's name closes it."""
    page.locator(".lm-MenuBar-item", has_text=menu).first.click()
    return page.locator(".lm-Menu-item", has=page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True))


def test_the_panel_is_found_in_the_palette_the_toolbar_the_view_menu_and_the_launcher(lab: Lab) -> None:
    lab.open("hosts.ipynb")
    page = lab.page
    for word in ("ai", "chat", "assistant"):
        page.keyboard.press("Control+Shift+C")
        page.locator(".lm-CommandPalette-input").fill(word)
        expect(page.locator(".lm-CommandPalette-item").first).to_contain_text("Agent: Show the AI Chat Assistant")
        page.keyboard.press("Escape")

    lab.picture("toolbar-with-the-agent")
    page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Agent").click()
    expect(side(page)).to_be_visible()
    expect(side(page).get_by_label("Message to the agent")).to_be_focused()
    page.wait_for_function("() => document.querySelector('.agent-kernel-side').offsetWidth >= 375")
    lab.picture("panel-opened-first")

    item = menu_item(page, "View", "Agent")
    expect(item).to_have_class(re.compile("lm-mod-toggled"))
    item.click()
    expect(side(page)).not_to_be_visible()
    item = menu_item(page, "View", "Agent")
    expect(item).not_to_have_class(re.compile("lm-mod-toggled"))
    page.keyboard.press("Escape")

    card = page.locator(".jp-LauncherCard", has_text="Notebook with agent panel")
    menu_item(page, "File", "New Launcher").click()
    expect(card).to_be_visible()
    lab.picture("launcher-with-the-agent")
    card.click()
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell", timeout=60_000)
    expect(side(page)).to_contain_text("Untitled.ipynb", timeout=30_000)
    expect(side(page)).not_to_contain_text("no kernel", timeout=30_000)
    lab.picture("agent-notebook")


def test_notebook_7_has_the_panel_too_and_it_says_what_a_server_lacks(lab: Lab, server: AgentServer) -> None:
    page = lab.page

    def lacking(route: Route) -> None:
        route.fulfill(status=404, content_type="text/html", body="<title>404</title>")

    page.route("**/agent/v1/health*", lacking)
    page.set_viewport_size({"width": 1200, "height": 800})
    page.goto(f"{server.url}notebooks/hosts.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.keyboard.press("Control+Shift+L")
    expect(page.get_by_role("heading", name="This server does not run the agent")).to_be_visible(timeout=30_000)
    lab.picture("notebook-7-without-the-server-extension")
    page.unroute("**/agent/v1/health*", lacking)
    page.get_by_role("button", name="Look again").click()
    say(side(page), "in Notebook 7")
    expect(side(page).get_by_role("log")).to_contain_text("Here as well.", timeout=30_000)
    expect(side(page)).to_contain_text("hosts.ipynb")
    expect(side(page).get_by_role("img", name="Diagram")).to_be_visible(timeout=30_000)
    lab.picture("notebook-7-panel")
    page.reload()
    page.get_by_role("button", name="Agent", exact=True).click(timeout=60_000)
    expect(side(page)).to_be_visible(timeout=30_000)
    wait_until(page, lambda: side(page).evaluate("panel => panel.getBoundingClientRect().right <= innerWidth + 1"))


def test_a_turn_that_ended_with_nobody_there_is_in_its_cell_when_the_notebook_is_opened(
    lab: Lab, server: AgentServer
) -> None:
    page = lab.page
    write_notebook(server.root, "left.ipynb", ["%%agent\nwhile nobody looks", "1 + 1", "%%agent\nwhile nobody looks"])
    lab.open("left.ipynb")
    lab.run(1)
    lab.save()
    lab.run(0, wait=False)
    expect(lab.cell(0)).to_contain_text("word word", timeout=30_000)
    page.goto("about:blank")
    wait_until(page, lambda: kernel_is_idle(server))
    lab.open("left.ipynb")
    expect(lab.cell(0)).to_contain_text("The end.", timeout=30_000)
    expect(lab.cell(0)).to_contain_text("tokens read")
    expect(lab.cell(2).locator(".jp-OutputArea-output")).to_have_count(0)
    lab.picture("a-turn-that-ended-with-nobody-there")
    lab.cell(1).locator(".jp-InputPrompt").click()
    page.keyboard.press("z")
    expect(lab.cell(0)).not_to_contain_text("The end.")
