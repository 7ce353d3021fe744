"""Tests, in real JupyterLab, a notebook that came with a colleague's conversation, and the number check of an
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export
from agent_kernel.sessions.store.memory import MemoryStore
from tests.browser.lab import SLOW_MS, Lab, lab_server
from tests.browser.panel import ask, ended, open_panel, use_kernel
from tests.server import AgentServer

pytestmark = pytest.mark.browser

CODE = "print('rows 150')\nprint('mean 41.2871')"
HOSTILE = "<img src=x onerror=\"document.title='pwned'\"> ok"
ANSWER = "Over **150** rows the mean is 41.3, which is 7% more than in 2019."
SCRIPT: list[dict[str, Any]] = [
    {"when": "the mean", "calls": [{"name": "python", "arguments": {"code": CODE}}]},
    {"when": "the mean", "text": ANSWER},
    {"text": "ok", "loop": True},
]


async def _theirs() -> bytes:
    """Return a conversation as another machine would have written it."""
    store, key = MemoryStore(), SessionKey("local", "theirs")
    said = {"t1": "what did my colleague ask?", "t2": "and then?"}
    for name, prompt in said.items():
        await store.add_turn(Turn(name, key, model="scripted"), [user(prompt), assistant(HOSTILE)])
    whole = await read_snapshot(store, key)
    await store.aclose()
    assert whole is not None
    return export(whole).document


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    with lab_server(tmp_path, SCRIPT, {"rain.ipynb": ["df = 1", "df"]}, dark=True) as server:
        (server.root / "rain.agent.json").write_bytes(asyncio.run(_theirs()))
        yield server


def test_what_came_along_is_shown_and_brought_in_and_numbers_lead_to_their_line(lab: Lab) -> None:
    panel = open_panel(lab)
    card = panel.get_by_role("region", name="A conversation beside this notebook")
    expect(card).to_contain_text("came with this notebook", timeout=SLOW_MS)
    card.get_by_role("button", name="Preview").click()
    expect(card).to_contain_text("what did my colleague ask?")
    lab.picture("arrival-dark")
    card.get_by_role("button", name="Import").click()
    expect(card).to_have_count(0, timeout=SLOW_MS)
    expect(panel).to_contain_text("and then?", timeout=SLOW_MS)

    # Code in a draft changes nothing and is not asked about; code in the kernel is asked about again after an import.
    turn = ask(use_kernel(panel), "the mean")
    expect(turn).to_contain_text("imported", timeout=SLOW_MS)
    panel.get_by_role("button", name="Run once", exact=True).click(timeout=SLOW_MS)
    ended(turn)
    expect(turn.locator(".ak-number-open")).to_have_text(["7% (not computed)"], timeout=SLOW_MS)
    numbers = turn.locator("button.ak-number")
    expect(numbers).to_have_text(["150", "41.3"])
    assert "line 2 of the output: mean 41.2871" in (numbers.last.get_attribute("title") or "")
    numbers.last.focus()
    numbers.last.press("Enter")
    expect(turn.locator("mark.ak-flash")).to_have_text("mean 41.2871")
    lab.picture("numbers-dark")
    lab.page.reload()
    again = open_panel(lab)
    expect(again.locator(".ak-number-open")).to_have_count(1, timeout=SLOW_MS)
    expect(again.locator(".ak-saved")).to_contain_text("in rain.agent.json", timeout=SLOW_MS)
    assert lab.page.title() != "pwned"
    lab.picture("numbers-reopened")
