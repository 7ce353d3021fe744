"""The chat panel in real JupyterLab. Screenshots are kept in build/screenshots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, write_notebook
from tests.server import AgentServer

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, Any]] = [
    {"when": "a long story", "text": "word " * 400, "deltas": 400, "delay": 0.02},
    {"when": "add them", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "add them", "text": "It is **42**."},
    {"text": "ok", "loop": True},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    server = AgentServer(tmp_path, SCRIPT, options=("--LabApp.news_url=None",), lab=True)
    asyncio.run(server.start())
    write_notebook(server.root, "rain.ipynb", ["df = 1", "df"])
    yield server
    server.sweep()


def test_a_person_asks_approves_and_reads_the_answer(lab: Lab) -> None:
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent")
    panel.get_by_label("Message to the agent").fill("add them")
    panel.get_by_label("Message to the agent").press("Enter")
    panel.get_by_role("button", name="Once").click(timeout=30_000)
    expect(panel.get_by_role("log")).to_contain_text("It is **42**.", timeout=30_000)
    lab.picture("panel-answers")


def test_stop_freezes_the_text(lab: Lab) -> None:
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent")
    panel.get_by_label("Message to the agent").fill("a long story")
    panel.get_by_label("Message to the agent").press("Enter")
    expect(panel.get_by_role("log")).to_contain_text("word word", timeout=30_000)
    panel.get_by_role("button", name="Stop").click()
    expect(panel.locator(".ak-turn")).to_have_attribute("data-state", "cancelled", timeout=10_000)
    said = panel.get_by_role("log").inner_text()
    lab.page.wait_for_timeout(700)
    assert panel.get_by_role("log").inner_text() == said
