"""The review of changes at the cells in Notebook 7, with the keyboard alone and as axe-core sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, WebSocket, expect

from tests.browser.lab import SLOW_MS, Lab, lab_server, use_theme, wait_until
from tests.browser.panel import ended, violations
from tests.browser.test_notebook_review import NOTEBOOKS, OWN, SCRIPT, bar, cards, source
from tests.server import LABEXTENSIONS, TOKEN, AgentServer

pytestmark = pytest.mark.browser
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    options = (
        f"--JupyterNotebookApp.extra_labextensions_path={LABEXTENSIONS}",
        "--JupyterNotebookApp.expose_app_in_browser=True",
    )
    with lab_server(tmp_path, SCRIPT, NOTEBOOKS, options=options, extensions=("notebook",)) as server:
        yield server


def check_in_each_theme(lab: Lab, name: str) -> None:
    for theme in THEMES:
        use_theme(lab.page, theme)
        assert violations(lab.page, OWN) == [], theme
        lab.picture(f"{name}-{theme.lower()}")


def received_frames(page: Page) -> list[str | bytes]:
    """What the page's WebSockets get from now on."""
    frames: list[str | bytes] = []

    def keep(frame: str | bytes) -> None:
        frames.append(frame)

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", keep)

    page.on("websocket", listen)
    return frames


def serves_kernel(frame: str | bytes) -> bool:
    """Whether the server knows which tools the page has for the notebook: it answers in order, and the page announces
    its tools before it asks for the news of the kernel."""
    if not isinstance(frame, str) or '"watching"' not in frame:
        return False
    return bool(json.loads(frame).get("kernel"))


def press(lab: Lab, card: Locator, button: str) -> None:
    """Tab from the card, which has the focus, to the button, and press it."""
    wanted = card.get_by_role("button", name=button, exact=True)
    for _ in range(6):
        lab.page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            break
    expect(wanted).to_be_focused()
    lab.page.keyboard.press("Enter")


def test_five_changes_are_reviewed_in_notebook_7_with_the_keyboard_alone(lab: Lab, server: AgentServer) -> None:
    page = lab.page
    frames = received_frames(page)
    page.goto(f"{server.url}notebooks/rain.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    page.keyboard.press("Control+Shift+L")
    panel = page.locator(".agent-kernel-side").get_by_role("region", name="Agent", exact=True)
    expect(panel.get_by_label("Message to the agent")).to_be_focused(timeout=SLOW_MS)
    wait_until(page, lambda: any(serves_kernel(frame) for frame in frames))
    page.keyboard.type("tidy up")
    page.keyboard.press("Enter")

    card = cards(lab)
    expect(card).to_contain_text("Change this cell?", timeout=SLOW_MS)
    page.keyboard.press("Alt+F5")
    expect(card).to_be_focused()
    check_in_each_theme(lab, "review-notebook-7")
    expect(card).to_be_focused()
    press(lab, card, "Accept")

    expect(lab.cell(1).locator(".ak-cell-review")).to_be_focused(timeout=SLOW_MS)
    press(lab, card, "Accept")
    expect(card).to_contain_text("SystemExit", timeout=SLOW_MS)
    expect(card).to_be_focused()
    expect(card).to_be_in_viewport()
    press(lab, card, "Reject")

    expect(card).to_contain_text("mean =", timeout=SLOW_MS)
    expect(card).to_be_focused()
    press(lab, card, "Edit")
    expect(card.get_by_label("The text that the cell gets")).to_be_focused()
    assert violations(page, OWN) == []
    page.keyboard.press("Control+a")
    page.keyboard.type("mean = 2")
    page.keyboard.press("Control+Enter")

    expect(card).to_contain_text("Add a Markdown cell here?", timeout=SLOW_MS)
    expect(card).to_be_focused()
    lab.picture("review-notebook-7-insert")
    press(lab, card, "Accept")
    ended(panel.locator(".ak-turn").last)
    assert [source(lab, f"cell-{n}") for n in (0, 1, 2, 30)] == [
        "df = [1, 2, 3]\nprint(df)",
        "sum(df)",
        "mean = 2",
        "x = 30",
    ]
    expect(bar(lab)).to_contain_text("4 cells changed")
    check_in_each_theme(lab, "review-notebook-7-bar")
    wait_until(page, lambda: _goes_to_the_bar(lab))
    page.keyboard.press("Enter")
    expect(bar(lab)).to_contain_text("Undone in 4 cells.")
    assert [source(lab, f"cell-{n}") for n in (0, 1, 2)] == ["df = 1", "df", "x = 2"]


def _goes_to_the_bar(lab: Lab) -> bool:
    """Press the key for the next change. JupyterLab may lose a key while it applies a theme, so the caller repeats
    it.
    """
    lab.page.keyboard.press("Alt+F5")
    lab.page.wait_for_timeout(500)
    undo = bar(lab).get_by_role("button", name="Undo changes")
    return bool(undo.evaluate("button => button === document.activeElement"))
