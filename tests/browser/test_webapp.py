"""Tests the panel as a web page: a user without Jupyter opens the address of ``agent-kernel serve``."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from agent_kernel.core.api_tokens import ApiTokenStore
from tests.browser.lab import FLAGS, SLOW_MS
from tests.browser.panel import PNG
from tests.browser.watch import Watch
from tests.conftest import chromium
from tests.narrowing import not_none
from tests.served import Served

pytestmark = pytest.mark.browser

PICTURE = f"class Pixel:\n    def _repr_png_(self):\n        return {PNG!r}\n\nPixel()"
HOSTILE = """\
payload: <script>window.pwned = 1</script> <img src=x onerror="window.pwned = 1"> [click](javascript:window.pwned=1)

<svg onload="window.pwned = 1"><a href="javascript:window.pwned=1">x</a></svg>

![far](https://evil.example/pixel.png)"""
SCRIPT: list[dict[str, Any]] = [
    {"when": "draw", "calls": [{"name": "python", "arguments": {"code": PICTURE}}]},
    {"when": "draw", "text": "It is **green**. " + "word " * 40, "deltas": 40, "delay": 0.05, "gate": "go"},
    {"when": "attack", "text": HOSTILE},
    {"text": "ok", "loop": True},
]
WIDTHS = (280, 380, 1400)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "served", SCRIPT, ("--base-url", "/team/")) as one:
        yield one.start()


@pytest.fixture
def chrome() -> Iterator[Browser]:
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=chromium(), headless=True, args=list(FLAGS))) as browser,
    ):
        yield browser


@contextlib.contextmanager
def open_page(chrome: Browser, served: Served, **how: Any) -> Iterator[tuple[Page, list[str]]]:
    """Open a page in a new profile. Yield it and a list of its console's messages about blocked content and script
    errors.
    """
    context = chrome.new_context(viewport={"width": 1280, "height": 860}, **how)
    page, wrong = context.new_page(), list[str]()

    def hear(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            wrong.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with closing(context):
        page.goto(str(served.started["page_url"]))
        yield page, wrong


def log_in(page: Page, token: str) -> Locator:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    field = page.get_by_label("Message to the agent")
    expect(field).to_be_visible(timeout=SLOW_MS)
    return field


def violations(page: Page) -> list[str]:
    answer = Axe().run(page).response
    assert answer["passes"], "it looked at something"
    return [f"{one['id']}: {node['html'][:200]}" for one in answer["violations"] for node in one["nodes"]]


def width_of_content(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_a_person_logs_in_asks_and_finds_the_conversation_again(chrome: Browser, served: Served) -> None:
    with open_page(chrome, served) as (page, wrong):
        expect(page.get_by_text("Where is the token?")).to_be_visible(timeout=SLOW_MS)
        assert violations(page) == []
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("does not know this token")
        field = log_in(page, served.token)
        expect(page.get_by_role("button", name="scripted")).to_be_visible()
        assert page.url == served.started["page_url"]
        stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert served.token not in stored
        assert "username" not in stored, "scripts do not see the login"
        field.fill("draw it")
        field.press("Enter")
        turn = page.locator(".ak-turn").first
        expect(turn).to_contain_text("It is green", timeout=SLOW_MS)
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()  # the answer is still streaming
        (served.directory / "go").touch()
        expect(turn.locator("figure[data-mime='image/png'] img")).to_be_visible(timeout=SLOW_MS)
        expect(turn.get_by_role("button", name="Retry")).to_be_visible(timeout=SLOW_MS)
        assert page.get_by_text("kernel").count() == 0, "there is none here"
        field.fill("attack")
        field.press("Enter")
        watch = Watch(page, served.url.removesuffix("team"))
        with watch.watching():
            expect(page.locator(".ak-turn").nth(1)).to_contain_text("payload:", timeout=SLOW_MS)
            page.wait_for_timeout(300)
            watch.check(HOSTILE, ".ak-turns")
        page.reload()
        expect(page).to_have_title("draw it - Agent", timeout=SLOW_MS)
        expect(page.locator(".ak-turn").first).to_contain_text("It is green", timeout=SLOW_MS)
        expect(page.locator("figure[data-mime='image/png'] img")).to_be_visible(timeout=SLOW_MS)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == [], scheme
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 720})
            assert width_of_content(page) == width
            for chip in page.locator(".ak-header .ak-chip").all():
                box = not_none(chip.bounding_box())
                assert (box["x"] + box["width"] < width, box["height"] < 30) == (True, True), chip.inner_text()
            assert not_none(page.locator(".ak-turn").first.bounding_box())["width"] <= 900
        page.get_by_label("Message to the agent").fill("a secret draft")
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("menuitem", name="Log out").click()
        expect(page.get_by_text("You are logged out.")).to_be_visible(timeout=SLOW_MS)
        assert page.title() == "Agent"
        assert page.request.get(f"{served.url}/agent/v1/sessions").status == 401
        assert "secret draft" not in page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        page.reload()
        expect(page.get_by_text("Where is the token?")).to_be_visible(timeout=SLOW_MS)
        assert wrong == []
    anna = ApiTokenStore(served.directory / "data" / "tokens").new(["turns", "sessions", "files"], user="anna")[1]
    with open_page(chrome, served, locale="de-DE") as (page, wrong):
        log_in_in_german(page, anna)
        page.get_by_role("button", name="Gespräche", exact=True).click()
        expect(page.get_by_text("Es gibt noch keine Gespräche")).to_be_visible(timeout=SLOW_MS)
        assert wrong == []


def log_in_in_german(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Anmelden").click()
    expect(page.get_by_role("button", name="Gespräche", exact=True)).to_be_visible(timeout=SLOW_MS)
    assert page.evaluate("document.documentElement.lang") == "de-DE"


@pytest.mark.slow  # its server starts three times
def test_the_page_waits_for_its_server_and_asks_for_a_login_that_has_ended(chrome: Browser, served: Served) -> None:
    tokens = ApiTokenStore(served.directory / "data" / "tokens")
    token, text = tokens.new(["turns", "sessions"], user="anna")
    port = served.url.rpartition(":")[2].partition("/")[0]
    with open_page(chrome, served) as (page, wrong):
        field = log_in(page, text)
        served.stop(signal.SIGKILL)
        expect(page.get_by_text("does not answer")).to_be_visible(timeout=SLOW_MS)
        served.options = (*served.options, "--port", port)
        served.start()
        field.fill("hello")
        expect(page.get_by_text("does not answer")).to_be_hidden(timeout=SLOW_MS)
        field.press("Enter")
        expect(page.locator(".ak-turn").first).to_contain_text("ok", timeout=SLOW_MS)
        tokens.revoke(token.id)
        served.stop(signal.SIGKILL)
        served.start()
        expect(page.get_by_text("Your login has ended")).to_be_visible(timeout=SLOW_MS)
        assert wrong == []
