"""Drives JupyterLab in a headless Chromium as a user does: presses keys and reads the output from the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.server import AgentServer, Json

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SLOW_MS = 60_000
expect.set_options(timeout=20_000)
"""Playwright's 5 s are too short for two browsers, their servers and kernels on two cores."""
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
HINT_SETTINGS = "agent-kernel/settings"
SETTLED = "() => [...document.querySelectorAll('.jp-StatusBar-Item, .jp-StatusBar-TextItem')]" + (
    ".some(item => /\\| Idle/.test(item.innerText))"
)


ONE_MOMENT = """() => {
  const at = Date.now();
  globalThis.realDate = Date;
  globalThis.Date = new Proxy(Date, {
    construct: (real, given) => new real(...(given.length ? given : [at])),
    get: (real, name) => name === 'now' ? () => at : real[name],
  });
}"""
"""Stops the clock of the page. The kernel tells requests of one command by their dates, and a page that shares its
cores with other tests may need longer for one of them than a user between two keys.
"""
NO_TRANSITION = "() => !document.getAnimations().some(one => one instanceof CSSTransition)"


class Lab:
    """One notebook in one page. Cells are counted from 0."""

    def __init__(self, page: Page, url: str, token: str) -> None:
        self.page = page
        self._url = url
        self._token = token

    def open(self, notebook: str) -> None:
        """Open the notebook and wait until its kernel's session is connected; keys pressed earlier are lost."""
        self.page.goto(f"{self._url}lab/tree/{notebook}?token={self._token}&reset")
        self.wait_open()

    def wait_open(self) -> None:
        """Of a page that goes to a notebook."""
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
        self.wait_idle()

    def wait_idle(self) -> None:
        self.page.wait_for_function(SETTLED, timeout=SLOW_MS)

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def output(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-OutputArea-output")

    def run(self, number: int, *, wait: bool = True) -> None:
        prompt = self.cell(number).locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self.cell(number).locator(".cm-content").first.click()
        self.page.keyboard.press("Control+Enter")
        if wait:
            expect(prompt).to_have_text(ran_since(before), timeout=SLOW_MS)
            self.wait_idle()

    def run_all(self) -> None:
        before = self._prompts().all_inner_texts()
        self.page.evaluate(ONE_MOMENT)
        self._menu("Run", "Run All Cells")
        self._wait_sent(before)
        self._wait_run(before)

    def restart_and_run_all(self) -> None:
        before = self._prompts().all_inner_texts()
        self._menu("Run", "Restart Kernel and Run All Cells…")
        self.page.evaluate(ONE_MOMENT)
        self.page.locator(".jp-Dialog button.jp-mod-accept").click()
        self._wait_sent(before)
        self._wait_run(before)

    def _prompts(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")

    def _wait_sent(self, before: Sequence[str]) -> None:
        """Wait until all cells wait or have run, and let the clock of the page go on."""
        expect(self._prompts()).to_have_text([sent_since(text) for text in before], timeout=SLOW_MS)
        self.page.evaluate("() => void (globalThis.Date = globalThis.realDate)")

    def _wait_run(self, before: Sequence[str]) -> None:
        expect(self._prompts()).to_have_text([ran_since(text) for text in before], timeout=SLOW_MS)
        self.wait_idle()

    def _menu(self, menu: str, item: str) -> None:
        self.page.locator(".lm-MenuBar-item", has_text=menu).first.click()
        self.page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()

    def type_into(self, number: int, source: str) -> None:
        """Replace the source of a cell."""
        self.cell(number).locator(".cm-content").first.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def answer(self, typed: str) -> None:
        """Type into the input field of a cell that waits for input."""
        box = self.page.locator(".jp-Stdin-input")
        box.wait_for(timeout=SLOW_MS)
        box.fill(typed)
        box.press("Enter")

    def interrupt(self) -> None:
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("i")
        self.page.keyboard.press("i")

    def save(self) -> None:
        self.page.keyboard.press("Control+s")
        expect(self.page.locator(".jp-mod-dirty, .jp-mod-saving")).to_have_count(0, timeout=SLOW_MS)

    def picture(self, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]', '-', name)}.png"
        self.page.screenshot(path=path)
        return path


@contextlib.contextmanager
def browser(chromium: str, url: str, token: str, *, size: tuple[int, int] = (1400, 1000)) -> Iterator[Lab]:
    """Start a browser with a fresh profile."""
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory(prefix="chromium-") as profile,
        closing(
            playwright.chromium.launch_persistent_context(
                profile,
                executable_path=chromium,
                headless=True,
                args=list(FLAGS),
                viewport={"width": size[0], "height": size[1]},
            )
        ) as context,
    ):
        yield Lab(context.pages[0] if context.pages else context.new_page(), url, token)


@contextlib.contextmanager
def lab_server(
    directory: Path,
    script: Sequence[Json],
    notebooks: Mapping[str, Sequence[str]],
    traits: Mapping[str, Any] | None = None,
    *,
    options: Sequence[str] = (),
    extensions: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    dark: bool = False,
    first_time: bool = False,
) -> Iterator[AgentServer]:
    """Start a server with JupyterLab, whose commands a page may run (``jupyterapp``). Call it before the browser
    starts, because Playwright brings its own event loop. The hint for a first notebook is shown only if it is
    the ``first_time``.
    """
    own = ("--LabApp.news_url=None", "--LabApp.expose_app_in_browser=True")
    with AgentServer(
        directory, script, traits or {}, options=(*own, *options), lab=True, extensions=tuple(extensions), env=env
    ) as server:
        if dark:
            write_settings(server, "@jupyterlab/apputils-extension/themes", {"theme": "JupyterLab Dark"})
        if not first_time:
            write_settings(server, HINT_SETTINGS, {"showHint": False})
        asyncio.run(server.start())
        for name, cells in notebooks.items():
            write_notebook(server.root, name, cells)
        yield server


def ran_since(prompt: str) -> re.Pattern[str]:
    """Return what the prompt of a cell looks like once the cell has run again. Each run of a kernel has a number of its
    own.
    """
    return re.compile(rf"^(?!{re.escape(prompt.strip())}$)\[\d+\]:$")


def sent_since(prompt: str) -> re.Pattern[str]:
    """Return what the prompt of a cell looks like once the cell has been sent to run again."""
    return re.compile(rf"^(?!{re.escape(prompt.strip())}$)\[(\*|\d+)\]:$")


def wait_until(page: Page, holds: Callable[[], bool], report: Callable[[], object] = lambda: "") -> None:
    """Wait for something that no locator shows. The page's events arrive meanwhile. ``report`` returns what a failure
    says.
    """
    until = time.monotonic() + SLOW_MS / 1000
    while time.monotonic() < until:
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"It did not happen within {SLOW_MS / 1000} s. {report()}")


def write_notebook(root: Path, name: str, cells: Sequence[str]) -> None:
    (root / name).write_text(json.dumps(document(cells)))


def document(cells: Sequence[str]) -> Json:
    """Return a notebook with the code cells ``cell-0``, ``cell-1`` and so on."""
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{n}",
                "metadata": {},
                "source": source,
                "outputs": [],
                "execution_count": None,
            }
            for n, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def use_theme(page: Page, theme: str) -> None:
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.wait_for_timeout(300)
    page.wait_for_function(NO_TRANSITION)


def write_settings(server: AgentServer, name: str, values: Json) -> None:
    """As if the user had changed them. ``name`` is that of the plugin, with a slash for its colon."""
    path = server.directory / "config" / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
