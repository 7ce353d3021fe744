"""Tests the agent's settings in JupyterLab's Settings Editor, and the panel in another language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Response, expect

from tests.browser.lab import SLOW_MS, Lab, browser, lab_server
from tests.browser.panel import open_panel
from tests.browser.test_panel_shell import narrow
from tests.conftest import chromium
from tests.scripted import call_when
from tests.server import TOKEN

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, Any]] = [
    call_when("Ändere", "edit_cell", cell="cell-0", find="1", replace="4"),
    {"text": "An answer.", "loop": True},
]
NOTEBOOKS = {"rain.ipynb": ["rain = [1, 2, 3]"]}


def open_settings(page: Page) -> None:
    page.evaluate("() => jupyterapp.commands.execute('settingeditor:open', {query: 'Agent'})")
    form = page.locator(".jp-SettingsPanel form", has_text="There is no telemetry").or_(
        page.locator(".jp-SettingsPanel form", has_text="Es gibt keine Telemetrie")
    )
    expect(form).to_be_visible(timeout=SLOW_MS)  # JupyterLab's own form of inline completion is found as well


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[id='jp-SettingsEditor-agent-kernel:settings_{name}']")


def is_last_save(response: Response) -> bool:
    """The editor saves a moment after a change, and on a slow machine it saves more than once."""
    saved = response.request.post_data or ""
    return response.request.method == "PUT" and "Answer in Latin." in saved and "showFacts" in saved


def test_a_setting_of_the_settings_editor_is_used_by_the_panel(lab: Lab) -> None:
    panel = open_panel(lab)
    page = lab.page
    open_settings(page)
    expect(page.locator(".jp-SettingsPanel")).to_contain_text("There is no telemetry")
    field(page, "place").select_option(label="Sandbox")
    field(page, "sendKey").select_option(label="Ctrl+Enter or Cmd+Enter")
    field(page, "instructions").fill("Answer in Latin.")
    with page.expect_response(is_last_save, timeout=SLOW_MS):
        field(page, "showFacts").uncheck()
    lab.picture("settings-editor")
    expect(panel.get_by_label("Where code runs")).to_have_value("sandbox", timeout=SLOW_MS)
    message = panel.get_by_label("Message to the agent")
    panel.get_by_role("button", name="Menu").click()
    panel.get_by_role("menuitem", name="Help and keys").click()
    expect(panel.get_by_role("dialog", name="Help and keys")).to_contain_text("Ctrl+Enter, Shift+Enter")
    panel.get_by_role("button", name="Back to the conversation").click()
    message.fill("How much rain?")
    message.press("Enter")
    expect(message).to_have_value("How much rain?\n")
    with page.expect_request(lambda request: request.url.endswith("agent/v1/turns")) as sent:
        message.press("Control+Enter")
    body = sent.value.post_data_json or {}
    assert (body["where"], body["instructions"], "effort" in body) == ("sandbox", "Answer in Latin.", False)
    turn = panel.locator(".ak-turn")
    expect(turn).to_have_attribute("data-state", "committed", timeout=SLOW_MS)
    expect(turn.locator(".ak-footer")).not_to_contain_text("written")


GERMAN_PACK = {
    "jupyterlab_language_pack_de_DE/__init__.py": "",
    "jupyterlab_language_pack_de_DE-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: pack\nVersion: 1\n",
    "jupyterlab_language_pack_de_DE-1.dist-info/entry_points.txt": (
        "[jupyterlab.languagepack]\nde_DE = jupyterlab_language_pack_de_DE\n"
    ),
}
"""A language pack without texts: JupyterLab offers only languages that have one, and adds our catalog to it."""


@pytest.fixture
def german_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    for name, text in GERMAN_PACK.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "pack"))
    chosen = tmp_path / "config" / "lab" / "user-settings" / "@jupyterlab" / "translation-extension"
    chosen.mkdir(parents=True)
    (chosen / "plugin.jupyterlab-settings").write_text('{"locale": "de_DE"}')
    path = chromium()
    assert path is not None
    with lab_server(tmp_path, SCRIPT, NOTEBOOKS) as server, browser(path, server.url, TOKEN) as lab:
        yield lab


def test_the_panel_speaks_the_language_of_jupyterlab(german_lab: Lab) -> None:
    panel = open_panel(german_lab)
    page = german_lab.page
    narrow(german_lab)
    say_in_german = panel.get_by_label("Nachricht an den Agenten")
    expect(say_in_german).to_be_visible(timeout=SLOW_MS)
    say_in_german.fill("Wie viel Regen?")
    say_in_german.press("Enter")
    turn = panel.locator(".ak-turn")
    expect(turn).to_have_attribute("data-state", "committed", timeout=SLOW_MS)
    expect(turn.locator(".ak-footer")).to_contain_text("geschrieben")
    german_lab.picture("panel-german-280")
    panel.get_by_role("button", name="Menü").click()
    german_lab.picture("panel-german-menu-280")
    panel.get_by_role("menuitem", name="Berechtigungen").click()
    expect(panel.get_by_role("dialog", name="Berechtigungen")).to_contain_text("Regeln dieses Servers")
    german_lab.picture("panel-german-settings-280")
    assert panel.evaluate("(panel) => panel.scrollWidth <= panel.clientWidth")
    panel.get_by_role("button", name="Zurück zum Gespräch").click()
    say_in_german.fill("Ändere die Zelle")
    say_in_german.press("Enter")
    number = panel.locator(".ak-call[data-status=waiting] .ak-target")
    expect(number).to_have_text("1", timeout=SLOW_MS)
    german_lab.picture("panel-german-change-280")
    assert number.evaluate("number => number.offsetWidth > 0 && number.scrollWidth <= number.offsetWidth")
    panel.get_by_role("button", name="Ablehnen").click()
    open_settings(page)
    expect(page.locator(".jp-SettingsPanel")).to_contain_text("Es gibt keine Telemetrie")
