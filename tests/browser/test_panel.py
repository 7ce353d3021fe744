"""Tests the chat panel in real JupyterLab: asking, stopping, leaving and coming back. Screenshots are written to
build/screenshots.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab, wait_until
from tests.browser.panel import PNG, ask, ended, open_panel, say, shown_panel, use_kernel
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser

WORDS = 300
CODE = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
SCRIPT: list[dict[str, Any]] = [
    {"when": "an endless story", "text": "".join(f"w{n} " for n in range(5_000)), "deltas": 5_000, "delay": 0.02},
    {"when": "a long story", "text": "".join(f"w{n} " for n in range(WORDS)), "deltas": WORDS, "delay": 0.02},
    {"when": "add them", "calls": [CODE]},
    {"when": "add them", "text": "It is **42**."},
    {"when": "never", "calls": [CODE]},
    {"when": "never", "text": "Then not."},
    *({"when": f"question {n} ", "text": f"Answer number {n}."} for n in range(200)),
    {"text": "ok", "loop": True},
]

PASTE = """(field, data) => {
    const bytes = Uint8Array.from(atob(data), one => one.charCodeAt(0));
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([bytes], "pasted.png", {type: "image/png"}));
    field.dispatchEvent(new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true}));
}"""
"""As Chromium tells a page of a picture in the clipboard."""


def words(turn: Locator) -> list[str]:
    """Return the words of the long story that the turn shows."""
    return [word for word in turn.locator(".ak-markdown").last.inner_text().split() if word.startswith("w")]


def test_a_person_asks_approves_denies_and_stops(lab: Lab) -> None:
    panel = use_kernel(open_panel(lab))
    turn = ask(panel, "add them")
    panel.get_by_role("button", name="Run once", exact=True).click(timeout=SLOW_MS)
    ended(turn)
    expect(turn).to_contain_text("It is 42.")

    denied = ask(panel, "never")
    panel.get_by_role("button", name="Deny", exact=True).click(timeout=SLOW_MS)
    ended(denied)
    expect(denied).to_contain_text("denied")
    expect(denied).to_contain_text("Then not.")

    stopped = ask(panel, "an endless story")
    expect(stopped).to_contain_text("w9 ", timeout=SLOW_MS)
    panel.get_by_role("button", name="Stop", exact=True).click()
    ended(stopped, "cancelled")
    kept = words(stopped)
    assert 9 < len(kept) < 5_000
    lab.page.wait_for_timeout(700)
    assert words(stopped) == kept
    lab.picture("panel-stopped")


def test_a_reload_another_window_and_a_kernel_restart_lose_nothing(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    turn = ask(panel, "a long story")
    expect(turn).to_contain_text("w9 ", timeout=SLOW_MS)
    lab.page.reload()
    lab.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    panel = shown_panel(lab.page)
    turn = panel.locator(".ak-turn").last
    expect(turn).to_contain_text("w9 ", timeout=SLOW_MS)

    other = lab.page.context.new_page()
    other.goto(f"{server.url}lab/tree/rain.ipynb?token={TOKEN}")
    other.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    there = shown_panel(other).locator(".ak-turn").last
    for each in (turn, there):
        ended(each)
        assert words(each) == [f"w{n}" for n in range(WORDS)], "every word once and in order, in both"
    asked = ask(use_kernel(shown_panel(other)), "add them")
    expect(panel.get_by_role("button", name="Run once", exact=True)).to_be_visible(timeout=SLOW_MS)
    panel.get_by_role("button", name="Run once", exact=True).click()
    ended(asked)
    expect(shown_panel(other).get_by_role("button", name="Run once", exact=True)).to_have_count(0)
    other.close()

    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        (kernel,) = client.get("api/kernels").json()
        client.post(f"api/kernels/{kernel['id']}/restart").raise_for_status()
    lab.wait_idle()
    expect(panel.locator(".ak-turn")).to_have_count(2)
    again = ask(panel, "hello")
    ended(again)
    lab.picture("panel-after-restart")


def test_a_picture_is_pasted_a_branch_made_and_the_conversation_taken_along(lab: Lab, tmp_path: Path) -> None:
    panel = open_panel(lab)
    field = panel.get_by_label("Message to the agent")
    field.evaluate(PASTE, base64.b64encode(PNG).decode())
    expect(panel.get_by_text("pasted", exact=False).first).to_be_visible()
    turn = ask(panel, "what is this")
    ended(turn)
    expect(turn.locator(".ak-prompt img, .ak-media img").first).to_be_visible(timeout=SLOW_MS)
    lab.picture("panel-pasted")

    say(panel, "/branch aside")
    expect(panel).to_contain_text("the branch aside")
    ended(ask(panel, "hello"))
    say(panel, "/undo")
    expect(panel.locator(".ak-turn")).to_have_count(1)
    expect(panel).to_contain_text("The last turn was undone.")
    field.fill("")

    with lab.page.expect_download() as download:
        say(panel, "/export-all")
    document = tmp_path / "talk.json"
    download.value.save_as(document)
    assert "what is this" in document.read_text()
    say(panel, "/new")
    expect(panel.locator(".ak-turn")).to_have_count(0)
    say(panel, "/import")
    panel.get_by_label("Document to import").set_input_files(document)
    panel.get_by_role("button", name="Import it").click()
    expect(panel.locator(".ak-turn")).to_have_count(1, timeout=SLOW_MS)
    expect(panel.get_by_role("log")).to_contain_text("what is this")


def test_a_turn_goes_on_while_nobody_looks_and_an_old_conversation_opens_at_its_end(
    lab: Lab, server: AgentServer
) -> None:
    panel = open_panel(lab)
    turn = ask(panel, "a long story")
    expect(turn).to_contain_text("w9 ", timeout=SLOW_MS)
    lab.page.goto("about:blank")
    talk(server, 200)
    panel = open_panel(lab)
    expect(panel).to_contain_text("Answer number 199.", timeout=SLOW_MS)
    assert panel.locator(".ak-turn").count() < 60, "what is far away is not loaded yet"
    log = panel.get_by_role("log")

    def shows_the_story() -> bool:
        log.evaluate("log => log.scrollTo(0, 0)")
        return "w299" in log.inner_text()

    wait_until(lab.page, shows_the_story)
    first = panel.locator(".ak-turn").first
    assert words(first) == [f"w{n}" for n in range(WORDS)], "it was finished without anybody, and is read to the end"
    lab.picture("panel-200-turns")


def talk(server: AgentServer, turns: int) -> None:
    """Run turns as another client of the same notebook; they queue behind the running turn."""
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        (kernel,) = client.get("api/kernels").json()
        for n in range(turns):
            body = {"prompt": f"question {n} ", "kernel": kernel["id"], "where": "sandbox"}
            reply = client.post("agent/v1/turns", json=body)
            reply.raise_for_status()
            client.get(f"agent/v1/turns/{reply.json()['turn']}/events").raise_for_status()  # to its last
