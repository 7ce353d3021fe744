"""Drives the chat panel in the side bar of JupyterLab as a user does."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""One green pixel."""


def open_panel(lab: Lab, notebook: str = "rain.ipynb") -> Locator:
    lab.open(notebook)
    return shown_panel(lab.page)


def shown_panel(page: Page) -> Locator:
    """Open the panel on a page with an open notebook, and return it."""
    panel = page.locator(".agent-kernel-side").get_by_role("region", name="Agent", exact=True)
    tab = page.get_by_role("tab", name="Agent", exact=True)
    tab.wait_for(timeout=SLOW_MS)
    page.evaluate("() => globalThis.jupyterapp?.restored")
    page.wait_for_timeout(500)  # a layout that is restored opens the side bar a moment later
    if tab.get_attribute("aria-selected") != "true":
        tab.click()
    expect(panel).to_be_visible(timeout=SLOW_MS)
    return panel


def use_kernel(panel: Locator) -> Locator:
    """Make the code of the following messages run in the kernel, after approval. The panel's default is a draft."""
    panel.get_by_label("Where code runs").select_option("live")
    return panel


def say(panel: Locator, words: str) -> None:
    field = panel.get_by_label("Message to the agent")
    field.fill(words)
    field.press("Enter")


def ask(panel: Locator, words: str) -> Locator:
    """Send a message and return the turn that answers it."""
    turns = panel.locator(".ak-turn")
    before = turns.count()
    say(panel, words)
    expect(turns).to_have_count(before + 1, timeout=SLOW_MS)
    return turns.last


def ended(turn: Locator, state: str = "committed") -> None:
    expect(turn).to_have_attribute("data-state", state, timeout=SLOW_MS)


def violations(page: Page, roots: Sequence[str] = (".agent-kernel-side",)) -> list[str]:
    """What axe-core objects to in the elements of these selectors that the page has."""
    answer = Axe().run(page, context=[root for root in roots if page.locator(root).count()]).response
    assert answer["passes"], "it looked at something"
    return [f"{one['id']}: {node['html'][:200]}" for one in answer["violations"] for node in one["nodes"]]
