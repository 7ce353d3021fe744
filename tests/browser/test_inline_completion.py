"""Tests completion of code in a cell of JupyterLab while a user types."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Locator, Page, Request, Response, expect

from tests.browser.lab import SLOW_MS, Lab, wait_until
from tests.browser.panel import open_panel
from tests.server import AgentServer

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, Any]] = [
    {"text": "Hello.", "loop": True},
    {"infill": "len(values)", "deltas": 4, "delay": 0.1, "when": "/ "},
    {"infill": "never shown", "delay": 120, "when": "total"},
    {"infill": "import math\nimport os"},
]
NOTEBOOKS = {"rain.ipynb": ["values = [1, 2, 3]", "", "", ""]}
PROVIDERS = "jp-SettingsEditor-@jupyterlab/completer-extension:inline-completer_providers"
TYPED_ON = "total = 1 + 1  # typed on"
COMPUTE = """code => {
    const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
    kernel.requestExecute({ code });
}"""


def prefix_of(request: Request) -> str | None:
    """Return the code before the cursor if this is a request for a completion, otherwise None."""
    return str((request.post_data_json or {})["prefix"]) if "/infill" in request.url else None


def for_cell(prefix: str) -> Callable[[Request], bool]:
    return lambda request: prefix_of(request) == prefix


def sent_prefixes(page: Page) -> list[str]:
    """Return a list that collects the code before the cursor of all following requests for completions."""
    prefixes: list[str] = []

    def note(request: Request) -> None:
        if (prefix := prefix_of(request)) is not None:
            prefixes.append(prefix)

    page.on("request", note)
    return prefixes


def turn_on(server: AgentServer) -> None:
    folder = server.directory / "config" / "lab" / "user-settings" / "@jupyterlab" / "completer-extension"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {"providers": {"agent-kernel": {"enabled": True}}}
    (folder / "inline-completer.jupyterlab-settings").write_text(json.dumps(chosen))


def is_settings_save(response: Response) -> bool:
    return response.request.method == "PUT" and "completer-extension:inline-completer" in unquote(response.url)


def ghost(lab: Lab, cell: int) -> Locator:
    return lab.cell(cell).locator(".jp-GhostText")


def source(lab: Lab, cell: int) -> str:
    """Return the source of a cell, without ghost text."""
    text = lab.page.evaluate(
        "cell => jupyterapp.shell.currentWidget.content.widgets[cell].model.sharedModel.getSource()", cell
    )
    return str(text)


def insert_code(lab: Lab, cell: int, text: str) -> None:
    """Insert the text as one change, so that it is one request, however slow the machine is."""
    lab.cell(cell).locator(".cm-content").first.click()
    lab.page.keyboard.insert_text(text)


def test_code_is_completed_once_jupyterlabs_settings_turn_it_on(lab: Lab) -> None:
    open_panel(lab)
    page = lab.page
    prefixes = sent_prefixes(page)
    insert_code(lab, 1, "sum(values) / ")
    page.wait_for_timeout(1_000)
    assert prefixes == []

    page.evaluate("() => jupyterapp.commands.execute('settingeditor:open', {query: 'Inline Completer'})")
    with page.expect_response(is_settings_save, timeout=SLOW_MS):
        page.locator(f"[id='{PROVIDERS}_agent-kernel_enabled']").check()
    lab.picture("inline-completion-settings")
    page.evaluate("() => void jupyterapp.commands.execute('docmanager:open', {path: 'rain.ipynb'})")
    insert_code(lab, 2, "sum(values) / ")
    expect(ghost(lab, 2)).to_contain_text("len(values)", timeout=SLOW_MS)
    lab.picture("inline-completion")
    page.keyboard.press("Tab")
    expect(ghost(lab, 2)).to_have_count(0)
    assert source(lab, 2) == "sum(values) / len(values)"
    assert prefixes[0] == "sum(values) / "

    lab.cell(3).locator(".cm-content").first.click()
    wait_until(page, lambda: _invoke_completion(lab, 3))
    expect(ghost(lab, 3)).to_contain_text("import os", timeout=SLOW_MS)


def _invoke_completion(lab: Lab, cell: int) -> bool:
    """Press the key for a completion. It does nothing while the kernel computes, for example for the panel, so the
    caller repeats it, as a user does.
    """
    lab.page.keyboard.press("Alt+Backslash")
    lab.page.wait_for_timeout(1_000)
    return ghost(lab, cell).count() > 0


def test_typing_on_and_a_kernel_that_computes_end_a_completion_and_no_key_is_lost(
    server: AgentServer, lab: Lab
) -> None:
    turn_on(server)
    open_panel(lab)
    page = lab.page
    prefixes = sent_prefixes(page)
    ended: list[str | None] = []
    page.on("requestfailed", lambda request: ended.append(prefix_of(request)))
    with page.expect_request(for_cell("total = ")):
        insert_code(lab, 1, "total = ")
    with page.expect_event("requestfailed", for_cell("total = ")), page.expect_request(for_cell(TYPED_ON)):
        page.keyboard.type(TYPED_ON.removeprefix("total = "), delay=20)
    assert source(lab, 1) == TYPED_ON
    # On a slow machine, code is requested between two keys as well.
    assert all(TYPED_ON.startswith(prefix) for prefix in prefixes)
    wait_until(page, lambda: ended == prefixes[:-1])

    with page.expect_event("requestfailed", for_cell(TYPED_ON)), page.expect_request(for_cell("total = ")):
        insert_code(lab, 2, "total = ")
    with page.expect_event("requestfailed", for_cell("total = ")):
        page.evaluate(COMPUTE, "import time; time.sleep(600)")
    wait_until(page, lambda: ended == prefixes)
    page.keyboard.type("2")
    page.wait_for_timeout(1_000)
    assert ended == prefixes
    assert prefixes[-1] == "total = "
    expect(ghost(lab, 2)).to_have_count(0)
    assert source(lab, 2) == "total = 2"
