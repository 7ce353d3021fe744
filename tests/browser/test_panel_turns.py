"""Tests how the panel shows turns, in real JupyterLab. Screenshots are written to build/screenshots."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, use_theme, wait_until
from tests.browser.panel import open_panel, say, use_kernel
from tests.server import TOKEN, AgentServer

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
    {"when": "a long story", "text": "word " * 1_200, "deltas": 150, "delay": 0.02, "gate": "go"},
    {"text": "ok", "loop": True},
]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "contrast": "JupyterLab Dark High Contrast"}


def pictures(lab: Lab, name: str) -> None:
    """Take a screenshot in each theme. The side bar is 250 pixels wide at first."""
    for short, theme in THEMES.items():
        use_theme(lab.page, theme)
        lab.picture(f"turns-{name}-{short}")
    use_theme(lab.page, THEMES["light"])


def is_at_end(panel: Locator) -> bool:
    distance = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
    return float(panel.get_by_role("log").evaluate(distance)) < 5


def test_a_turn_is_read_decided_about_edited_and_asked_again(lab: Lab) -> None:
    panel = use_kernel(open_panel(lab))
    say(panel, "add them")
    card = panel.get_by_role("group", name="Run in your kernel?")
    expect(card).to_contain_text("rain.ipynb", timeout=30_000)
    expect(card).to_contain_text("total = 6 * 7")
    expect(card.locator(".ak-source")).to_have_css("white-space", "pre-wrap")  # no code is hidden to the right
    pictures(lab, "question")
    panel.get_by_label("Message to the agent").press("Alt+Enter")
    expect(card).to_be_focused()
    lab.page.wait_for_timeout(600)
    lab.page.keyboard.press("a")
    expect(card).to_contain_text("raise ValueError", timeout=30_000)
    card.get_by_role("button", name="Always in this conversation").click()
    turn = panel.locator(".ak-turn").first
    expect(turn).to_have_attribute("data-state", "committed", timeout=30_000)
    expect(turn.get_by_role("button", name="Read 2 cells, listed the cells")).to_be_visible()
    expect(turn).to_contain_text("no rain")
    turn.locator("[data-status=success] > .ak-row").last.click()
    expect(turn).to_contain_text("sum 42")
    pictures(lab, "finished")

    turn.get_by_role("button", name="Retry").click()
    expect(turn).to_contain_text("Forty-two, again.", timeout=30_000)
    expect(panel.locator(".ak-turn")).to_have_count(1)
    turn.get_by_role("button", name="Previous version").click()
    expect(turn).to_contain_text("no rain", timeout=30_000)
    turn.get_by_role("button", name="Edit").click()
    expect(panel.get_by_label("Message to the agent")).to_have_value("add them")
    say(panel, "subtract them")
    expect(turn).to_contain_text("It is zero.", timeout=30_000)
    expect(turn.get_by_role("group", name="Version 3 of 3")).to_be_visible()
    lab.page.reload()
    expect(turn).to_contain_text("It is zero.", timeout=60_000)
    expect(turn.get_by_role("group", name="Version 3 of 3")).to_be_visible()
    pictures(lab, "versions")


def test_a_long_answer_stays_where_the_person_reads(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    say(panel, "a long story")
    log = panel.get_by_role("log")
    below = panel.get_by_role("button", name="New messages below")
    expect(log).to_contain_text("word word", timeout=30_000)
    log.evaluate(WATCH_SHIFTS)
    lab.page.wait_for_function("() => document.querySelector('.ak-turns').scrollTop > 50", timeout=30_000)
    wait_until(lab.page, lambda: is_at_end(panel))
    log.hover()
    lab.page.mouse.wheel(0, -10_000)
    (server.directory / "go").touch()
    expect(below).to_be_visible(timeout=30_000)
    top = log.evaluate("log => log.scrollTop")
    lab.page.wait_for_timeout(500)
    assert log.evaluate("log => log.scrollTop") == top
    lab.picture("turns-new-below")
    below.click()
    expect(below).to_be_hidden()
    turn = panel.locator(".ak-turn")
    expect(turn).to_have_attribute("data-state", "committed", timeout=60_000)
    wait_until(lab.page, lambda: is_at_end(panel))
    assert log.evaluate("() => window.endShift") < 2
    spoken = panel.locator(".ak-aloud[role=status]")
    expect(spoken).to_contain_text("Done")


WATCH_SHIFTS = """log => {
  const prompt = log.querySelector('.ak-footer');
  window.endShift = 0;
  const turn = log.querySelector('.ak-turn');
  new MutationObserver(() => {
    if (turn.dataset.state === 'open') window.footerHeight = prompt.getBoundingClientRect().height;
    else requestAnimationFrame(() => {
      window.endShift = Math.abs(log.querySelector('.ak-footer').getBoundingClientRect().height - window.footerHeight);
    });
  }).observe(turn, { attributes: true, childList: true, subtree: true, characterData: true });
}"""


def test_a_session_of_many_turns_opens_at_its_end_and_shows_earlier_ones_in_their_place(
    lab: Lab, server: AgentServer
) -> None:
    run_turns(server, 60)
    panel = open_panel(lab)
    turns = panel.locator(".ak-turn")
    expect(turns.last).to_contain_text("ask 59", timeout=30_000)
    expect(turns).to_have_count(20)
    wait_until(lab.page, lambda: is_at_end(panel))
    first = turns.first
    first.scroll_into_view_if_needed()
    expect(turns).to_have_count(40, timeout=30_000)
    expect(panel.get_by_text("ask 40", exact=True)).to_be_in_viewport()
    panel.get_by_role("log").focus()
    lab.page.keyboard.press("Alt+ArrowUp")
    expect(turns.last).to_be_focused()
    lab.page.keyboard.press("Alt+ArrowUp")
    expect(turns.nth(38)).to_be_focused()
    expect(panel.get_by_text("ask 58", exact=True)).to_be_in_viewport()


def run_turns(server: AgentServer, count: int) -> None:
    """Run ``count`` turns of the notebook's session before a page is opened."""
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        made = client.post("agent/v1/sessions", params={"path": "rain.ipynb"}, json={"bind": True}).json()["id"]
        for number in range(count):
            turn = client.post("agent/v1/turns", json={"prompt": f"ask {number}", "session": made}).json()["turn"]
        client.get(f"agent/v1/turns/{turn}/events")
