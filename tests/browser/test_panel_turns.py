"""What the panel shows of turns, in real JupyterLab. Screenshots are kept in build/screenshots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, write_notebook
from tests.server import AgentServer

pytestmark = pytest.mark.browser

ANSWER = "The mean is **42**.\n\n```python\ndf.rain.mean()\n```\n"
SCRIPT: list[dict[str, Any]] = [
    {
        "when": "add them",
        "reasoning": "Look first, then add.",
        "calls": [{"name": "read_cells", "arguments": {"cells": "0-1"}}, {"name": "notebook_cells", "arguments": {}}],
    },
    {"when": "add them", "calls": [{"name": "python", "arguments": {"code": "total = 6 * 7\nprint('sum', total)"}}]},
    {"when": "add them", "calls": [{"name": "python", "arguments": {"code": "raise ValueError('no rain')"}}]},
    {"when": "add them", "text": ANSWER},
    {"when": "add them", "text": "Forty-two, again."},
    {"when": "subtract", "text": "It is *zero*."},
    {"when": "a long story", "text": "word " * 600, "deltas": 300, "delay": 0.02},
    {"text": "ok", "loop": True},
]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    options = ("--LabApp.news_url=None", "--LabApp.expose_app_in_browser=True")
    server = AgentServer(tmp_path, SCRIPT, options=options, lab=True)
    asyncio.run(server.start())
    write_notebook(server.root, "rain.ipynb", ["df = 1", "df"])
    yield server
    server.sweep()


def opened(lab: Lab) -> Locator:
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    return lab.page.get_by_role("region", name="Agent")


def ask(panel: Locator, words: str) -> None:
    panel.get_by_label("Message to the agent").fill(words)
    panel.get_by_label("Message to the agent").press("Enter")


def pictures(lab: Lab, panel: Locator, name: str) -> None:
    for short, theme in THEMES.items():
        lab.page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        lab.page.wait_for_function(
            "dark => document.body.dataset.jpThemeLight === (dark ? 'false' : 'true')", arg=short != "light"
        )
        lab.page.wait_for_timeout(400)
        lab.picture(f"turns-{name}-{short}")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    panel.evaluate("panel => { panel.style.width = '280px'; }")
    lab.page.wait_for_timeout(300)
    lab.picture(f"turns-{name}-narrow")
    panel.evaluate("panel => { panel.style.width = ''; }")


def test_a_turn_is_read_decided_about_edited_and_asked_again(lab: Lab) -> None:
    panel = opened(lab)
    ask(panel, "add them")
    card = panel.get_by_role("group", name="Run in your kernel?")
    expect(card).to_contain_text("rain.ipynb", timeout=30_000)
    expect(card).to_contain_text("total = 6 * 7")
    pictures(lab, panel, "question")
    panel.get_by_label("Message to the agent").press("Alt+Enter")
    expect(card).to_be_focused()
    lab.page.wait_for_timeout(600)
    lab.page.keyboard.press("a")
    expect(card).to_contain_text("raise ValueError", timeout=30_000)
    card.get_by_role("button", name="Session").click()
    turn = panel.locator(".ak-turn").first
    expect(turn).to_have_attribute("data-state", "committed", timeout=30_000)
    expect(turn.get_by_role("button", name="Read 2 cells, listed the cells")).to_be_visible()
    expect(turn).to_contain_text("no rain")
    turn.locator("[data-status=success] > .ak-row").last.click()
    expect(turn).to_contain_text("sum 42")
    pictures(lab, panel, "finished")
