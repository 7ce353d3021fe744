"""Tests a corpus of hostile texts wherever the panel and a saved notebook show untrusted text: no script runs, no
request goes to another server, and no link leads to one without a click.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, lab_server, wait_until
from tests.browser.watch import Watch, notices
from tests.server import AgentServer, followed, start_turn
from tests.soak.payloads import CORPUS
from tests.soak.test_xss import FORBIDDEN_IN, notebook_of

pytestmark = pytest.mark.browser

TEXTS: list[str] = [entry["text"] for entry in CORPUS]
PER_TURN = 24
NAME = "<img src=x onerror=window.pwned=1> [x](javascript:1) $\\href.ipynb"
OTHER = "\"onmouseover=window.pwned=1 '><script>window.pwned=1<\\script>.ipynb"
TITLE = "</title><img src=x onerror=window.pwned=1> [x](javascript:window.pwned=1)"
FILE = "<img src=x onerror=window.pwned=1>.txt"
FORBIDDEN = "script, iframe, object, embed, link, meta, base, style, form, template, svg :not(path), annotation"
DIAGRAMS = (
    *(f'flowchart LR\n  A["{text}"]' for text in TEXTS[::12]),
    "flowchart LR\n  A@{ img: 'https://evil.example/pixel.png' }",
    "flowchart LR\n  A[x]\n  style A fill:url(https://evil.example/b.png)",
    "flowchart LR\n  A[x]\n  click A href 'javascript:window.pwned=1'",
    "flowchart LR\n  A[x]\n  click A call eval('window.pwned=1')",
    '%%{init: {"securityLevel": "loose", "themeCSS": "* {fill: red}"}}%%\nflowchart LR\n  A["#lt;b#gt;"]',
    '%%{init: {"securityLevel": "loose"}}%%\nflowchart LR\n  A["<b>x</b><script>window.pwned"] --> B[<b>y</b>]',
)
CHUNKS = [list(enumerate(TEXTS))[start : start + PER_TURN] for start in range(0, len(TEXTS), PER_TURN)]


def mark_text(number: int, text: str) -> str:
    """Return the text with a marker that tests can search for, placed so that the text begins a block."""
    return f"payload-{number}-here\n\n{text}"


def prompt_of(chunk: int) -> str:
    return f"chunk {chunk:02d} is\n\n" + "\n\n".join(text for _, text in CHUNKS[chunk])


def code(texts: list[str]) -> str:
    """Return code that outputs the texts in all ways: printed, raised, as column names and cells of a table, and as the
    name of a file.
    """
    return (
        f"import pandas\ntexts = {texts!r}\nfor text in texts:\n    print(text)\n"
        f"display(pandas.DataFrame({{text: [text] for text in texts}}))\n"
        f"open({FILE!r}, 'w').write('x')\nraise ValueError(texts[0])"
    )


def script() -> list[dict[str, Any]]:
    """Return rounds with one payload each, as text, reasoning, and name and arguments of an unknown tool; one call
    prints all payloads.
    """
    rounds: list[dict[str, Any]] = []
    for number, chunk in enumerate(CHUNKS):
        when = f"chunk {number:02d} is"
        ran = {"name": "python", "arguments": {"code": code([text for _, text in chunk])}}
        for place, text in chunk:
            call = {"name": text[:60] or "x", "arguments": {text[:40]: text}}
            calls = [call, *([ran] if place == chunk[0][0] and number < len(CHUNKS) - 1 else [])]
            words = mark_text(place, text)
            rounds.append({"when": when, "text": words, "reasoning": text, "deltas": 3, "delay": 0.002, "calls": calls})
        shown = [f"chunk {number:02d} was shown"]
        if number == len(CHUNKS) - 1:
            shown += [f"````````mermaid\n{source}\n````````" for source in DIAGRAMS]
        rounds.append({"when": when, "text": "\n\n".join(shown)})
    return [*rounds, {"text": "ok", "loop": True}]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AgentServer]:
    with lab_server(tmp_path, script(), {NAME: ["1"], OTHER: ["1"]}, {"max_tool_rounds": PER_TURN + 2}) as server:
        yield server


async def converse(server: AgentServer) -> None:
    """Run all chunks but the last in turns of the two notebooks, set a hostile title, and import the session into the
    other notebook as a document from a stranger.
    """
    kernel = await server.start_kernel(NAME)
    other = await server.start_kernel(OTHER)
    async with server.client() as client:
        session = ""
        for chunk in range(len(CHUNKS) - 1):
            started = await start_turn(client, prompt_of(chunk), kernel=kernel, where="sandbox")
            session = started["session"]
            events = await followed(client, started["turn"])
            assert events[-1]["data"]["state"] == "committed", events[-1]
        renamed = await client.patch(f"agent/v1/sessions/{session}", json={"title": TITLE})
        assert renamed.status_code == 200, renamed.text
        document = (await client.get(f"agent/v1/sessions/{session}/export")).content
        where = {"kernel": other, "bind": "1"}
        imported = await client.post("agent/v1/sessions/import", params=where, content=document)
        assert imported.status_code < 300, imported.text


@pytest.fixture
def talked(server: AgentServer) -> AgentServer:
    """Run the turns before a browser starts, because Playwright brings its own event loop. Return the server."""
    asyncio.run(converse(server))
    return server


def open_panel(lab: Lab, notebook: str) -> Locator:
    lab.open(quote(notebook))
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent", exact=True)
    expect(panel.locator(".ak-turn").first).to_be_visible(timeout=30_000)
    return panel


def look(watch: Watch, panel: Locator, numbers: range) -> None:
    """Open everything that can be opened, dispatch the events that elements may react to, and check the page."""
    panel.evaluate(
        """root => { for (const one of root.querySelectorAll('details')) one.open = true;
        for (const one of root.querySelectorAll('.ak-turn [aria-expanded=false]')) one.click(); }"""
    )
    watch.page.wait_for_timeout(500)
    panel.evaluate(
        """root => { for (const one of root.querySelectorAll('.ak-turn *'))
        for (const name of ['mouseover', 'pointerenter', 'focus', 'mouseenter', 'animationstart', 'toggle'])
            one.dispatchEvent(new Event(name)); }"""
    )
    turns = panel.locator(".ak-turns")

    def missing() -> list[int]:
        text = turns.evaluate("root => root.textContent")
        return [number for number in numbers if f"payload-{number}-here" not in text]

    wait_until(watch.page, lambda: not missing(), lambda: f"not shown: {missing()}")
    watch.check("the corpus", ".ak-panel")
    found = watch.page.evaluate(FORBIDDEN_IN, [".ak-turns", FORBIDDEN])
    assert not found, found
    styled = panel.evaluate("root => [...root.querySelectorAll('.ak-markdown [style]')].map(one => one.outerHTML)")
    assert not styled, styled
    away = panel.evaluate("root => [...root.querySelectorAll('.ak-turns a[href]')].filter(one => !one.rel).length")
    assert away == 0


def test_nothing_that_is_shown_in_the_panel_runs(talked: AgentServer, lab: Lab) -> None:
    notices(lab)
    watch = Watch(lab.page, talked.url)
    last = len(CHUNKS) - 1
    stored = range(CHUNKS[last][0][0])
    with watch.watching():
        panel = open_panel(lab, NAME)
        expect(panel.locator(".ak-turn")).to_have_count(last, timeout=30_000)
        expect(panel.locator(".ak-media")).to_have_count(last)
        for table in panel.locator(".ak-media").all():
            table.scroll_into_view_if_needed()
            expect(table.locator("tbody td").first).to_be_attached()
        look(watch, panel, stored)
        panel.get_by_label("Message to the agent").fill(prompt_of(last))
        panel.get_by_label("Message to the agent").press("Enter")
        expect(panel.get_by_role("log")).to_contain_text(f"chunk {last:02d} was shown", timeout=60_000)
        diagrams = panel.get_by_role("group", name="Code, mermaid")
        expect(diagrams).to_have_count(len(DIAGRAMS))
        for diagram in diagrams.all():
            diagram.scroll_into_view_if_needed()
            expect(diagram.locator(".ak-diagram img, .ak-code-note")).to_be_visible()
        assert diagrams.locator(".ak-diagram img").count() > 2
        look(watch, panel, range(len(TEXTS)))
        lab.picture("panel-hostile")
        address = lab.page.url
        panel = open_panel(lab, OTHER)
        look(watch, panel, stored)
        assert lab.page.url.split("/lab")[0] == address.split("/lab")[0]


def test_nothing_that_a_saved_notebook_shows_runs(server: AgentServer, lab: Lab) -> None:
    """Printed by nbconvert, which sanitises nothing."""
    watch = Watch(lab.page, server.url)
    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    with watch.watching():
        for start in range(0, len(TEXTS), 64):
            texts = TEXTS[start : start + 64]
            notebook = nbformat.from_dict(notebook_of(texts, random.Random(7)))
            body, _ = exporter.from_notebook_node(notebook)
            lab.page.set_content(f"<!DOCTYPE html><html><body>{body}</body></html>", wait_until="load")
            lab.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            watch.check("the corpus", ".jp-OutputArea-output, .output_area")
            assert lab.page.locator("details").count() >= len(texts)
