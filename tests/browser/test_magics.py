"""Tests the magics that need the front end: a proposed cell, an output that is updated after its cell has ended, and
the page as it is while the notebook is open.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser
SLOW = 60_000
SCRIPT: list[dict[str, Any]] = [
    {"when": "write a cell", "text": "Here:\n```python\nproposed = 6 * 7\nproposed\n```\n"},
    {"when": "count slowly", "text": " ".join(map(str, range(40))), "deltas": 40, "delay": 0.1, "gate": "go"},
    {"text": "Answer.", "loop": True},
]
CELLS = ("%%agent -f code\nwrite a cell", "%%agent --background\ncount slowly", "1 + 1")
NOTEBOOKS = {"mine.ipynb": CELLS}


def read_newest_turn(server: AgentServer) -> tuple[int, list[str]]:
    """Return, for the newest turn, how many messages the model read, and the notices."""
    headers = {"Authorization": f"token {TOKEN}"}
    with httpx.Client(base_url=f"{server.url}agent/v1/", headers=headers, trust_env=False) as http:
        session = http.get("binding", params={"path": "mine.ipynb"}).json()["session"]["id"]
        turn = http.get(f"sessions/{session}/items?limit=0").json()["turns"][-1]["id"]
        lines = http.get(f"turns/{turn}/events").text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
    return next(event["data"]["messages"] for event in events if event["type"] == "context"), notices


def test_a_cell_is_proposed_another_grows_aside_and_the_open_page_is_the_history(lab: Lab, server: AgentServer) -> None:
    lab.open("mine.ipynb")
    lab.run(0)
    proposed = lab.cell(1).locator(".cm-content")
    expect(proposed).to_have_text("proposed = 6 * 7proposed", timeout=SLOW)
    expect(lab.output(1)).to_have_count(0)
    lab.run(1)
    expect(lab.output(1).last).to_contain_text("42", timeout=SLOW)

    lab.run(2, wait=False)
    expect(lab.cell(2)).to_contain_text("0 1 2", timeout=SLOW)
    lab.run(3)
    expect(lab.output(3).last).to_contain_text("2", timeout=SLOW)
    expect(lab.cell(2)).not_to_contain_text("38 39")
    lab.picture("magic-background")
    (server.directory / "go").touch()
    expect(lab.cell(2)).to_contain_text("38 39", timeout=SLOW)
    expect(lab.cell(2)).to_contain_text("tokens read", timeout=SLOW)
    expect(lab.cell(2)).not_to_contain_text("Running in the background")
    expect(lab.cell(3)).not_to_contain_text("38 39")

    lab.cell(3).locator(".cm-content").first.click()
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("b")
    lab.type_into(4, "%%agent --above\nwhat is there?")
    lab.run(4)
    expect(lab.cell(4)).to_contain_text("Answer.", timeout=SLOW)
    messages, notices = read_newest_turn(server)
    assert notices == [], "the page told where the cell stands"
    # instructions; the first turn with its note and its answer; two plain cells around the second turn; the question
    assert messages == 9, messages
    lab.picture("magic-above")

    lab.type_into(4, "%agent freeze --in-place")
    lab.run(4)
    expect(lab.cell(4)).to_contain_text("mine.ipynb is open in the browser", timeout=SLOW)
