"""Tests a notebook that is a conversation: the kernel "Agent prompts (Python)", from the launcher to the
button below a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, lab_server
from tests.server import ROOT, TOKEN, AgentServer

pytestmark = pytest.mark.browser
SLOW = 60_000
PROMPT = re.compile(r"\bak-prompt\b")
SCRIPT: list[dict[str, Any]] = [
    {"when": "count slowly", "text": " ".join(map(str, range(40))), "deltas": 40, "delay": 0.1, "gate": "go"},
    {"when": "plot sales", "text": "Here is the plot."},
    {"text": "Anything.", "loop": True},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    with lab_server(tmp_path, SCRIPT, {}, env={"JUPYTER_PATH": str(ROOT / "packaging")}) as server:
        yield server


def test_from_the_launcher_to_answers_in_cells_and_a_button_below_a_sentence(lab: Lab, server: AgentServer) -> None:
    page = lab.page
    page.goto(f"{server.url}lab?token={TOKEN}&reset")
    card = page.locator(".jp-LauncherCard[data-category='Notebook']", has_text="Agent prompts (Python)")
    expect(card.locator("img.jp-Launcher-kernelIcon")).to_have_attribute(
        "src", re.compile("kernelspecs/agent-python/logo-svg.svg"), timeout=SLOW
    )
    lab.picture("prompt-launcher")
    card.click()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW)
    lab.wait_idle()

    lab.cell(0).locator(".cm-content").click()
    for key in "> a person who types without a pause sees a prompt before the end":
        page.keyboard.press(key)
        if PROMPT.search(lab.cell(0).get_attribute("class") or ""):
            break
        page.wait_for_timeout(40)
    expect(lab.cell(0)).not_to_contain_text("the end")
    lab.type_into(0, "> count **slowly**\n> and count slowly")
    lab.run(0, wait=False)
    expect(lab.cell(0)).to_contain_text("0 1 2", timeout=SLOW)
    expect(lab.cell(0)).not_to_contain_text("38 39")
    (server.directory / "go").touch()
    expect(lab.cell(0)).to_contain_text("38 39", timeout=SLOW)
    expect(lab.cell(0)).to_have_class(PROMPT)
    lab.wait_idle()

    page.keyboard.press("Escape")
    page.keyboard.press("b")
    lab.type_into(1, "plot sales by month")
    lab.run(1)
    expect(lab.cell(1)).to_contain_text("begin the cell with >", timeout=SLOW)
    expect(lab.cell(1)).not_to_have_class(PROMPT)
    expect(lab.cell(1).get_by_role("button", name="Fix with agent")).to_have_count(0)
    ask = lab.cell(1).get_by_role("button", name="Ask the agent", exact=True)
    lab.picture("prompt-offer")
    ask.click()
    expect(lab.cell(1)).to_contain_text("Here is the plot.", timeout=SLOW)
    expect(ask).to_have_count(0)
    expect(lab.cell(1)).to_have_class(PROMPT)
    lab.picture("prompt-answered")

    lab.cell(1).get_by_role("button", name="Ask the agent in this cell, or make it code again").click()
    expect(lab.cell(1)).not_to_have_class(PROMPT)
    lab.type_into(1, "6 * 7")
    lab.run(1)
    expect(lab.output(1).last).to_contain_text("42")
