"""The panel without a mouse: where the focus is after each step, what Escape does, and files that are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab, use_theme
from tests.browser.panel import ask, ended, open_panel, say, use_kernel
from tests.scripted import call_when, python_when
from tests.server import AgentServer

pytestmark = pytest.mark.browser
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")
CODE = "# a comment\nfor n in range(3):\n    print('n', 7)"
SCRIPT: list[dict[str, Any]] = [
    *python_when("compute", CODE),
    call_when("tidy", "edit_cell", cell="cell-0", find="df = 1", replace="df = 2"),
    {"when": "tidy", "text": "I did not change it."},
    {"when": "slow", "text": "word " * 400, "deltas": 400, "delay": 0.1, "loop": True},
    {"text": f"```python\n{CODE}\n```", "loop": True},
]
NOTEBOOKS = {"rain.ipynb": ["df = 1", "df"]}
TRAITS = {"upload_mb": 1}
LOW_CONTRAST = """() => {
    const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = color;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const under = element => {
        let seen = [0, 0, 0, 0];
        for (let at = element; at && seen[3] < 0.99; at = at.parentElement) {
            const color = rgba(getComputedStyle(at).backgroundColor);
            const left = (1 - seen[3]) * color[3];
            seen = [0, 1, 2].map(n => seen[n] + left * color[n]).concat(seen[3] + left);
        }
        return seen;
    };
    const light = color => {
        const [r, g, b] = color.map(n => n / 255).map(n => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (text, back) => {
        const both = [light([0, 1, 2].map(n => text[n] * text[3] + back[n] * (1 - text[3]))), light(back)];
        return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    };
    const low = new Set();
    const root = document.querySelector('.agent-kernel-side');
    for (const field of root.querySelectorAll('input, textarea')) {
        if (!field.placeholder || !field.getClientRects().length) continue;
        const shown = contrast(rgba(getComputedStyle(field, '::placeholder').color), under(field));
        if (shown < 4.5) low.add(`${shown.toFixed(2)} ${field.placeholder}`);
    }
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.getClientRects().length) continue;
        if (element.closest('.ak-unseen, :disabled, [aria-disabled=true]')) continue;
        const shown = contrast(rgba(getComputedStyle(element).color), under(element));
        const text = texts.currentNode.data.trim().slice(0, 20);
        if (shown < 4.5) low.add(`${shown.toFixed(2)} ${element.className} ${text}`);
    }
    return [...low];
}"""
"""The texts of the panel, and the hints in its fields, whose contrast is below WCAG's 4.5."""


def field(panel: Locator) -> Locator:
    return panel.get_by_label("Message to the agent")


def drop(page: Page, target: Locator, files: Sequence[Path]) -> None:
    """Drop files of the desktop, as the browser itself reports it."""
    box = target.bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in files], "dragOperationsMask": 1}
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})
    session.detach()


def test_the_focus_is_never_lost_and_escape_does_what_is_expected(lab: Lab) -> None:
    page = lab.page
    panel = use_kernel(open_panel(lab))
    keys = page.keyboard
    turn = ask(panel, "compute")
    card = panel.get_by_role("group", name="Your answer is needed: Run in your kernel?")
    expect(card).to_be_visible(timeout=SLOW_MS)
    keys.press("Alt+Enter")
    expect(card).to_be_focused()
    page.wait_for_timeout(600)  # before that, keys do not answer
    keys.press("a")
    ended(turn)
    expect(panel.get_by_role("log")).to_be_focused()

    say(panel, "/rename")
    expect(panel.get_by_label("Title of the conversation")).to_be_focused()
    keys.type("Rain")
    keys.press("Enter")
    expect(field(panel)).to_be_focused()
    expect(panel.get_by_role("heading", name="Rain")).to_be_visible()

    say(panel, "/clear")
    expect(panel.get_by_role("button", name="Leave it")).to_be_focused()
    keys.press("Escape")
    expect(panel.get_by_role("alertdialog")).to_have_count(0)
    expect(field(panel)).to_be_focused()

    say(panel, "slow")
    expect(panel.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    keys.press("Escape")
    message = panel.get_by_text("Press Escape again to stop the running turn.")
    expect(message).to_be_visible()
    keys.press("Escape")
    ended(panel.locator(".ak-turn").last, "cancelled")
    expect(message).to_have_count(0)

    say(panel, "slow")
    panel.get_by_role("button", name="Stop", exact=True).click()
    expect(panel.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    expect(field(panel)).to_be_focused()

    say(panel, "/sessions")
    expect(panel.get_by_label("Search conversations")).to_be_focused()
    panel.get_by_role("button", name="Menu").focus()
    keys.press("Enter")
    expect(panel.get_by_role("menuitem", name="New conversation")).to_be_focused()
    keys.press("Enter")
    expect(panel.get_by_role("dialog")).to_have_count(0)
    expect(field(panel)).to_be_focused()


def test_a_proposed_change_of_a_cell_that_the_person_changed_is_proposed_again(lab: Lab) -> None:
    panel = open_panel(lab)
    say(panel, "tidy")
    card = lab.page.locator(".jp-Notebook .ak-cell-review")
    expect(card).to_contain_text("Change this cell?", timeout=SLOW_MS)
    lab.type_into(0, "df = 1  # mine")
    for place in (card, panel.locator(".ak-approval")):
        expect(place).to_contain_text("The cell has changed since this change was proposed")
        expect(place.get_by_role("button", name="Accept")).to_have_count(0)
    lab.picture("review-outdated")
    lab.type_into(0, "df = 1")
    expect(card.get_by_role("button", name="Accept")).to_be_visible()
    lab.type_into(0, "df = 3")
    card.get_by_role("button", name="Propose again").click()
    turn = panel.locator(".ak-turn").last
    ended(turn)
    expect(turn).to_contain_text("the agent was asked to propose again")
    expect(lab.cell(0).locator(".cm-content")).to_have_text("df = 3")


def test_files_are_dropped_anywhere_on_the_panel_and_what_is_refused_says_why(
    lab: Lab, server: AgentServer, tmp_path: Path
) -> None:
    page = lab.page
    (server.root / "sales.csv").write_text("a,b\n1,2\n")
    table, folder, large = tmp_path / "rain.csv", tmp_path / "a folder", tmp_path / "large.bin"
    table.write_text("a;b\n1;2\n")
    folder.mkdir()
    large.write_bytes(bytes(2 << 20))
    panel = open_panel(lab)
    chips = panel.get_by_role("list", name="Attachments of this message")
    drop(page, panel.get_by_role("log"), [table])
    expect(chips).to_contain_text("rain.csv")
    expect(page).to_have_url(f"{server.url}lab/tree/rain.ipynb")
    drop(page, panel.get_by_role("log"), [folder])
    expect(panel).to_contain_text("a folder was not attached: it is a folder, or it cannot be read.")
    drop(page, field(panel), [large])
    expect(chips).to_contain_text("large.bin: A file can have at most 1 MiB.")

    source = page.locator(".jp-DirListing-item", has_text="sales.csv")
    page.get_by_role("button", name="Refresh the file browser.").first.click()
    source.drag_to(field(panel))
    expect(field(panel)).to_have_value("sales.csv ")
    expect(field(panel)).to_be_focused()


def test_every_text_of_the_panel_can_be_read_in_each_theme(lab: Lab) -> None:
    panel = use_kernel(open_panel(lab))
    say(panel, "compute")
    panel.get_by_role("button", name="Run once", exact=True).click(timeout=SLOW_MS)
    ended(panel.locator(".ak-turn").last)
    panel.locator(".ak-call .ak-row").click()
    ended(ask(panel, "show code"))
    for theme in THEMES:
        use_theme(lab.page, theme)
        assert lab.page.evaluate(LOW_CONTRAST) == [], theme
        say(panel, "/settings")
        panel.get_by_role("dialog").wait_for()
        assert lab.page.evaluate(LOW_CONTRAST) == [], theme
        lab.page.keyboard.press("Escape")
