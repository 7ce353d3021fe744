"""The line that tells a person with a first notebook how to ask the agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab, lab_server
from tests.browser.panel import shown_panel
from tests.server import LABEXTENSIONS, TOKEN, AgentServer

pytestmark = pytest.mark.browser
LINE = "Ask the agent: begin a cell with %%agent, or click Agent in the toolbar."
SHOW_AGAIN = """() => jupyterapp.serviceManager.settings.save("agent-kernel:settings", '{"showHint": true}')"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    options = (f"--JupyterNotebookApp.extra_labextensions_path={LABEXTENSIONS}",)
    notebooks = {"rain.ipynb": ["df = 1"]}
    with lab_server(tmp_path, [], notebooks, options=options, extensions=("notebook",), first_time=True) as server:
        yield server


def hint(page: Page) -> Locator:
    return page.locator(".Toastify__toast", has_text=LINE)


def test_a_first_notebook_comes_with_one_line_that_says_how_to_ask_and_no_later_one_does(
    lab: Lab, server: AgentServer
) -> None:
    page = lab.page
    page.set_viewport_size({"width": 1200, "height": 800})
    page.goto(f"{server.url}notebooks/rain.ipynb?token={TOKEN}")
    expect(hint(page)).to_be_visible(timeout=SLOW_MS)
    lab.picture("hint-notebook-7")
    hint(page).get_by_role("button", name="Show the agent's panel").click()
    expect(page.locator(".agent-kernel-side").get_by_label("Message to the agent")).to_be_focused()
    expect(hint(page)).to_have_count(0)

    lab.open("rain.ipynb")
    panel = shown_panel(page)
    expect(hint(page)).to_have_count(0)
    page.get_by_role("tab", name="Agent", exact=True).click()
    expect(panel).to_be_hidden()
    page.evaluate(SHOW_AGAIN)
    lab.open("rain.ipynb")
    expect(hint(page)).to_be_visible(timeout=SLOW_MS)
    lab.picture("hint-lab")
    page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Agent", exact=True).click()
    expect(hint(page)).to_have_count(0)
