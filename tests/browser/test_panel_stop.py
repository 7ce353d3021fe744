"""Tests Stop, the queue and Edit in the panel, in real JupyterLab: no message of a user is lost."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import PNG, ask, ended, open_panel, say, shown_panel
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser

STORY: dict[str, Any] = {"when": "a long story", "text": "word " * 1500, "deltas": 1500, "delay": 0.1}
SCRIPT: list[dict[str, Any]] = [STORY, STORY, {"text": "An answer.", "loop": True}]
DOT = FilePayload(name="dot.png", mimeType="image/png", buffer=PNG)
NOTES = FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"wet")


def attach(panel: Locator) -> Locator:
    """Attach an image and a file, and wait until both are uploaded. Return the list of attachments."""
    panel.get_by_label("Files to attach").set_input_files([DOT, NOTES])
    along = panel.get_by_role("list", name="Attachments of this message")
    expect(along).to_contain_text("dot.png")
    expect(along).to_contain_text("notes.txt")
    expect(along.get_by_role("listitem").filter(has_text="notes.txt").locator("progress")).to_have_count(0)
    return along


def has_attachments(along: Locator) -> None:
    """Wait until the image and the file are attached, and nothing else that has a name."""
    names = along.get_by_role("listitem").filter(has_text=".")
    expect(names).to_have_text(["dot.png", "notes.txt"], use_inner_text=True)


def reload_page(lab: Lab) -> Locator:
    lab.page.reload()
    lab.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    return shown_panel(lab.page)


def read_turns(server: AgentServer) -> list[dict[str, Any]]:
    """Return the turns of the notebook's session, oldest first."""
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        session = client.get("agent/v1/binding?path=rain.ipynb").json()["session"]
        turns: list[dict[str, Any]] = client.get(f"agent/v1/sessions/{session['id']}/turns").json()["turns"]
        return turns


def test_stop_ends_one_turn_and_what_was_queued_is_in_the_composer_again(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    story = ask(panel, "a long story")
    expect(story).to_contain_text("word word", timeout=SLOW_MS)
    along = attach(panel)
    say(panel, "first in line")
    waiting = panel.get_by_role("list", name="Waiting messages")
    expect(waiting).to_contain_text("first in line")
    say(panel, "second in line")
    expect(waiting.get_by_role("listitem")).to_have_count(2)
    panel = reload_page(lab)
    expect(waiting).to_contain_text("first in line", timeout=SLOW_MS)
    expect(waiting).to_contain_text("second in line")
    field = panel.get_by_label("Message to the agent")
    field.fill("half a thought")
    lab.picture("stop-queue")
    panel.get_by_role("button", name="Stop", exact=True).click()

    ended(panel.locator(".ak-turn").first, "cancelled")
    expect(waiting).to_have_count(0)
    expect(panel.locator(".ak-turn")).to_have_count(1)
    expect(field).to_have_value("first in line\nsecond in line\nhalf a thought")
    expect(along.locator("img")).to_have_count(1, timeout=SLOW_MS)
    expect(along).to_contain_text("notes.txt")
    lab.picture("stop-returned")
    assert [turn["prompt"] for turn in read_turns(server)] == ["a long story"]

    panel = reload_page(lab)
    expect(field).to_have_value("first in line\nsecond in line\nhalf a thought", timeout=SLOW_MS)
    expect(panel.locator(".ak-turn")).to_have_count(1)
    field.press("Enter")
    ended(panel.locator(".ak-turn").last)
    assert [turn["state"] for turn in read_turns(server)] == ["cancelled", "committed"]


def test_stop_leaves_the_message_of_another_tab_in_the_queue(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    expect(ask(panel, "a long story")).to_contain_text("word word", timeout=SLOW_MS)
    other = Lab(lab.page.context.new_page(), server.url, TOKEN)
    try:
        there = open_panel(other)
        expect(there.locator(".ak-turn")).to_contain_text("word word", timeout=SLOW_MS)
        say(there, "of the other tab")
        for side in (there, panel):
            waiting = side.get_by_role("list", name="Waiting messages")
            expect(waiting.get_by_role("listitem")).to_have_count(1)
            expect(waiting).to_contain_text("of the other tab")
            expect(side.locator(".ak-turn")).to_have_count(1)  # it is shown once
        panel.get_by_role("button", name="Stop", exact=True).click()
        for side in (there, panel):
            ended(side.locator(".ak-turn").first, "cancelled")
            expect(side.locator(".ak-turn").last).to_contain_text("of the other tab", timeout=SLOW_MS)
            expect(side.get_by_label("Message to the agent")).to_have_value("")
    finally:
        other.page.close()
    assert [turn["prompt"] for turn in read_turns(server)] == ["a long story", "of the other tab"]


def test_what_is_taken_back_from_the_queue_can_be_changed_and_sent_again(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    expect(ask(panel, "a long story")).to_contain_text("word word", timeout=SLOW_MS)
    along = attach(panel)
    say(panel, "and then")
    panel.get_by_role("button", name="Take back: and then").click()
    field = panel.get_by_label("Message to the agent")
    expect(field).to_have_value("and then")
    has_attachments(along)
    panel.get_by_role("button", name="Stop", exact=True).click()
    ended(panel.locator(".ak-turn").first, "cancelled")
    panel.locator(".ak-turn").first.get_by_role("button", name="Edit").click()
    expect(field).to_have_value("a long story")
    expect(along).not_to_contain_text("dot.png")
    say(panel, "a short story")
    ended(panel.locator(".ak-turn").last)
    expect(field).to_have_value("and then")
    has_attachments(along)
    field.press("Enter")
    expect(panel.locator(".ak-turn")).to_have_count(2)
    ended(panel.locator(".ak-turn").last)
    last = read_turns(server)[-1]
    assert (last["prompt"], len(last["media"]), [one["name"] for one in last["inputs"]]) == (
        "and then",
        1,
        ["notes.txt"],
    )


def test_edit_keeps_images_and_files(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    along = attach(panel)
    ended(ask(panel, "what is this"))
    first = read_turns(server)[-1]
    for prompt in ("what is that", "what was that"):
        panel.locator(".ak-turn").last.get_by_role("button", name="Edit").click()
        expect(along.locator("img")).to_have_count(1)
        expect(along).to_contain_text("notes.txt")
        lab.picture("edit-keeps")
        say(panel, prompt)
        expect(panel.locator(".ak-turn").last).to_contain_text(prompt, timeout=SLOW_MS)
        ended(panel.locator(".ak-turn").last)
        expect(panel.locator(".ak-turn")).to_have_count(1)
        last = read_turns(server)[-1]
        # A turn that has just ended may be listed with the bytes of its images beside their hashes.
        assert [one["hash"] for one in last["media"]] == [one["hash"] for one in first["media"]]
        assert (last["prompt"], last["inputs"]) == (prompt, first["inputs"])
        panel = reload_page(lab)
        expect(panel.locator(".ak-turn")).to_contain_text(prompt, timeout=SLOW_MS)


def test_an_edit_of_a_turn_that_is_gone_leaves_the_text_and_a_composer_that_sends(
    lab: Lab, server: AgentServer
) -> None:
    panel = open_panel(lab)
    ended(ask(panel, "how much rain"))
    panel.locator(".ak-turn").last.get_by_role("button", name="Edit").click()
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        session = client.get("agent/v1/binding?path=rain.ipynb").json()["session"]
        lab.page.route("**/agent/v1/sessions/*/turns*", lambda route: route.abort())  # the news of it is missed
        client.post(f"agent/v1/sessions/{session['id']}/clear").raise_for_status()
    say(panel, "how much snow")
    field = panel.get_by_label("Message to the agent")
    expect(panel.get_by_text("send your text as a new message")).to_be_visible(timeout=SLOW_MS)
    expect(field).to_have_value("how much snow")
    lab.picture("edit-of-a-turn-that-is-gone")
    lab.page.unroute_all()
    field.press("Enter")
    expect(panel.locator(".ak-turn").last).to_contain_text("how much snow")
    ended(panel.locator(".ak-turn").last)
