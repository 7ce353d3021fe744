"""Tests the parts of the panel around the conversation: header, composer, list of conversations, states."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Route, WebSocketRoute, expect

from tests.browser.lab import Lab, browser, wait_until, write_notebook
from tests.browser.panel import PNG, open_panel, say, shown_panel
from tests.conftest import chromium
from tests.narrowing import not_none
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser

SLOW = 30_000
SCRIPT: list[dict[str, Any]] = [
    {"when": "a long story", "text": "word " * 1500, "deltas": 1500, "delay": 0.1},
    {"text": "An answer.", "loop": True},
]
NOTEBOOKS = {"rain.ipynb": ["rain = [1, 2, 3]", "rain[7]"]}
DARK = True


class Wire:
    """The panel's connection to the server, which a test can cut and restore. Create it before the page opens."""

    def __init__(self, lab: Lab) -> None:
        self._page = lab.page
        self._cut = False
        self._sockets: list[WebSocketRoute] = []
        self._page.route_web_socket(re.compile("agent/v1/socket"), self._opened)
        self._page.route(re.compile("agent/v1/"), self._asked)

    def _opened(self, socket: WebSocketRoute) -> None:
        if self._cut:
            socket.close()
        else:
            socket.connect_to_server()
            self._sockets.append(socket)

    def _asked(self, route: Route) -> None:
        if self._cut:
            route.abort("connectionfailed")
        else:
            route.continue_()

    def cut(self) -> None:
        self._cut = True
        for socket in self._sockets:
            socket.close()
        self._sockets = []

    def mend(self) -> None:
        self._cut = False


def narrow(lab: Lab, width: int = 280) -> None:
    """Drag the edge of the side bar until the side bar is ``width`` pixels wide."""
    edge = not_none(lab.page.locator("#jp-right-stack").bounding_box())
    handle = not_none(
        lab.page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").last.bounding_box()
    )
    lab.page.mouse.move(handle["x"] + handle["width"] / 2, 400)
    lab.page.mouse.down()
    lab.page.mouse.move(edge["x"] + edge["width"] - width, 400, steps=3)
    lab.page.mouse.up()


def gap_in_toolbar_button(lab: Lab) -> float:
    """Return the pixels between the icon and the label of the button in the notebook's toolbar."""
    button = lab.page.locator(".jp-NotebookPanel-toolbar [data-jp-item-name='agent']")
    icon = not_none(button.locator("svg").bounding_box())
    label = not_none(button.locator(".jp-ToolbarButtonComponent-label").bounding_box())
    # The margin of the label is not a part of its box.
    return label["x"] - icon["x"] - icon["width"]


def test_a_message_is_composed_queued_and_lost_by_nothing(lab: Lab) -> None:
    panel = open_panel(lab)
    assert 3 <= gap_in_toolbar_button(lab) <= 8
    lab.run(0)
    lab.run(1)
    expect(panel.get_by_text("Ask about this notebook")).to_be_visible()
    lab.picture("shell-empty-dark")
    field = panel.get_by_label("Message to the agent")
    field.click()
    field.press_sequentially("mean of @ra")
    expect(panel.get_by_role("option", name="rain")).to_be_visible(timeout=SLOW)
    field.press("Enter")
    expect(field).to_have_value("mean of rain ")
    panel.get_by_label("Files to attach").set_input_files(
        [
            FilePayload(name="dot.png", mimeType="image/png", buffer=PNG),
            FilePayload(name="notes.txt", mimeType="text/plain", buffer=b"wet"),
        ]
    )
    along = panel.get_by_role("list", name="Attachments of this message")
    expect(along).to_contain_text("notes.txt")
    expect(along.get_by_role("listitem").filter(has_text="notes.txt").locator("progress")).to_have_count(0)
    assert {"@rain", "dot.png", "notes.txt"} <= {
        text.strip() for text in along.get_by_role("listitem").all_inner_texts()
    }
    lab.picture("shell-composer-dark")
    along.get_by_role("button", name="Leave out dot.png").click()
    expect(along).not_to_contain_text("dot.png")
    panel = open_panel(lab)
    expect(field).to_have_value("mean of rain ", timeout=SLOW)

    say(panel, "a long story")
    expect(panel.get_by_role("log")).to_contain_text("word word", timeout=SLOW)
    say(panel, "and then")
    waiting = panel.get_by_role("list", name="Waiting messages")
    expect(waiting).to_contain_text("and then")
    narrow(lab)
    lab.picture("shell-running-narrow-dark")
    waiting.get_by_role("button", name="Take back: and then").click()
    expect(waiting).to_have_count(0, timeout=SLOW)

    def escape_twice() -> bool:
        """Between two tries of a slow machine there may be more time than between two keys of a person."""
        field.press("Escape")
        lab.page.keyboard.press("Escape")
        return panel.locator(".ak-turn").first.get_attribute("data-state") == "cancelled"

    wait_until(lab.page, escape_twice)
    field.fill("")
    field.press("ArrowUp")
    expect(field).to_have_value("a long story")
    field.press("Escape")
    field.press_sequentially("/he")
    expect(panel.get_by_role("option", name="help")).to_be_visible()
    field.press("Tab")
    field.press("Enter")
    expect(panel.get_by_role("dialog", name="Help and keys")).to_be_visible()
    lab.picture("shell-help-narrow-dark")
    lab.page.keyboard.press("Escape")
    expect(field).to_be_focused()


def test_conversations_are_found_renamed_and_opened_and_nothing_is_lost_offline(lab: Lab) -> None:
    wire = Wire(lab)
    panel = open_panel(lab)
    say(panel, "how much rain")
    expect(panel.get_by_role("log")).to_contain_text("An answer.", timeout=SLOW)
    panel.get_by_role("button", name="rain", exact=True).click()
    panel.get_by_label("Title of the conversation").fill("Wet days")
    panel.get_by_label("Title of the conversation").press("Enter")
    expect(panel.get_by_role("button", name="Wet days")).to_be_visible()
    say(panel, "/new")
    expect(panel.get_by_text("Ask about this notebook")).to_be_visible(timeout=SLOW)
    panel.get_by_role("button", name="Menu").click()
    lab.picture("shell-menu-dark")
    panel.get_by_role("menuitem", name="All conversations").click()
    sheet = panel.get_by_role("dialog", name="Conversations")
    expect(sheet.get_by_role("button", name="Delete Wet days")).to_be_visible(timeout=SLOW)
    sheet.get_by_label("Search conversations").fill("how much")
    expect(sheet.locator("q")).to_contain_text("how much rain", timeout=SLOW)
    lab.picture("shell-sessions-dark")
    sheet.get_by_role("button", name="Delete Wet days").click()
    sheet.get_by_role("button", name="Keep it").click()
    sheet.locator(".ak-session-open").filter(has_text="Wet days").click()
    expect(panel.get_by_role("log")).to_contain_text("how much rain", timeout=SLOW)

    panel.get_by_role("button", name="scripted").click()
    expect(panel.get_by_role("dialog", name="Model")).to_contain_text("a model on this machine")
    lab.picture("shell-model-dark")
    panel.get_by_role("button", name="Back to the conversation").click()

    wire.cut()
    expect(panel.get_by_text("Text that you type here is kept")).to_be_visible(timeout=SLOW)
    say(panel, "typed while it was away")
    expect(panel.get_by_label("Message to the agent")).to_have_value("typed while it was away")
    lab.picture("shell-offline-dark")
    wire.mend()
    panel.get_by_role("button", name="Try now").click()
    expect(panel.get_by_role("button", name="Try now")).to_have_count(0, timeout=SLOW)
    panel.get_by_label("Message to the agent").press("Enter")
    expect(panel.locator(".ak-turn")).to_have_count(2, timeout=SLOW)


def test_what_is_missing_says_what_to_do_about_it(tmp_path: Path) -> None:
    """In the light theme: no kernel, a kernel again, and a model that is not on this machine."""
    path = not_none(chromium())
    server = AgentServer(
        tmp_path,
        SCRIPT,
        traits={"cache_dir": str(tmp_path / "no models")},
        options=("--LabApp.news_url=None",),
        lab=True,
    )
    in_thread(server.start)
    write_notebook(server.root, "rain.ipynb", ["rain = [1, 2, 3]"])
    with server, browser(path, server.url, TOKEN) as lab:
        panel = open_panel(lab)
        say(panel, "hello")
        expect(panel.get_by_role("log")).to_contain_text("An answer.", timeout=SLOW)
        shut_down_kernel(lab)
        expect(panel.locator(".ak-kernel")).to_contain_text("no kernel", timeout=SLOW)
        expect(panel.get_by_text("This notebook has no kernel")).to_be_visible(timeout=SLOW)
        expect(panel.get_by_role("log")).to_contain_text("An answer.", timeout=SLOW)
        lab.picture("shell-no-kernel-light")
        panel.get_by_role("button", name="Start a kernel").click()
        # An idle kernel is named by what messages do with it: their code runs in a draft of it.
        expect(panel.locator(".ak-kernel")).to_contain_text("draft", timeout=SLOW)
        say(panel, "/model")
        sheet = panel.get_by_role("dialog", name="Model")
        expect(sheet.get_by_role("button", name="Download").first).to_be_visible(timeout=SLOW)
        lab.picture("shell-model-light")
        panel.get_by_role("button", name="Back to the conversation").click()
        in_thread(lambda: choose(server, "tiny"))
        open_panel(lab)
        expect(panel.get_by_text("is not on this machine")).to_be_visible(timeout=SLOW)
        narrow(lab)
        lab.picture("shell-model-missing-narrow-light")
        say(panel, "/settings")
        rules = panel.get_by_role("dialog", name="Permissions")
        expect(rules).to_contain_text("Python in your kernelasks you", timeout=SLOW)
        lab.picture("shell-settings-narrow-light")


def in_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run ``work`` in another thread, because Playwright uses the event loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()


async def choose(server: AgentServer, model: str) -> None:
    async with server.client() as client:
        reply = await client.put("agent/v1/engine?path=rain.ipynb", json={"model": model})
        assert reply.status_code == 200, reply.text


def shut_down_kernel(lab: Lab) -> None:
    lab.page.locator(".lm-MenuBar-item", has_text="Kernel").first.click()
    lab.page.locator(".lm-Menu-itemLabel").get_by_text("Shut Down Kernel", exact=True).click()


def test_the_panel_has_room_the_first_time_that_it_is_shown_in_a_workspace(lab: Lab) -> None:
    panel = open_panel(lab)
    narrow(lab, 300)
    lab.page.goto(lab.page.url.replace("/lab/", "/lab/workspaces/second/"))
    lab.wait_open()
    panel = shown_panel(lab.page)
    expect(panel).to_have_js_property("offsetWidth", 378)
    narrow(lab, 300)
    lab.page.get_by_role("tab", name="Agent", exact=True).click()
    expect(panel).to_be_hidden()
    lab.page.get_by_role("tab", name="Agent", exact=True).click()
    expect(panel).to_be_visible()
    lab.page.wait_for_timeout(500)
    assert panel.evaluate("panel => panel.offsetWidth") <= 300
