"""Tests what the panel shows of a turn whose server was killed and started again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import open_panel, say
from tests.server import AgentServer

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, Any]] = [
    {"when": "a story", "text": "Once upon a time. " * 40, "deltas": 40, "delay": 0.05, "gate": "never"}
]


def test_text_that_the_server_lost_stays_in_the_panel_and_is_named_as_not_saved(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    say(panel, "a story")
    turn = panel.locator(".ak-turn")
    expect(turn).to_contain_text("Once upon a time", timeout=SLOW_MS)
    port = server.port
    in_loop(server.kill)
    in_loop(lambda: server.start(port))
    expect(turn).to_have_attribute("data-state", "interrupted", timeout=SLOW_MS)
    expect(turn).to_contain_text("The text of its last step was not saved.")
    expect(turn).to_contain_text("Once upon a time")


def in_loop(run: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run a coroutine in a thread of its own, because Playwright has a running loop in this thread."""
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
