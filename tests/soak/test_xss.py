"""Puts hostile text in every place that is displayed, in the programs that display notebooks: no script runs, and
nothing is requested.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import nbformat
import pytest
from nbconvert import HTMLExporter

from agent_kernel.notebook.display import render
from agent_kernel.notebook.display.media_bundle import media_bundle
from tests.browser.lab import Lab, browser, document
from tests.browser.watch import Watch, notices
from tests.conftest import chromium
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import TOKEN, AgentServer, Json, followed, start_turn
from tests.soak.conftest import Soak
from tests.soak.payloads import hostile

BATCH = 25
SCRIPTED = 12
FORBIDDEN = (
    "script, iframe, object, embed, link, meta, base, style, form, input:not(.task-list-item-checkbox[disabled]), "
    "video, audio, svg, math, template"
)
"""A line ``- [ ] to do`` is printed with a box that nobody can tick."""
FORBIDDEN_IN = """([root, forbidden]) => [...document.querySelectorAll(root)]
    .flatMap(place => [...place.querySelectorAll(forbidden)]).map(node => node.outerHTML.slice(0, 300))"""
PRINTED = ".jp-OutputArea-output, .output_area"


def bundles(words: str, chance: random.Random) -> Iterator[render.Bundle]:
    """Yield MIME bundles with ``words`` in every place where the notebook surface shows untrusted text."""
    card = render.Card(words, words, chance.choice(["live", "sandbox", words]), words)
    card.add(words)
    card.close(words, 0.1)
    summary = render.TurnSummary(words, words, words, words, True, words, words, words, {"seconds": 1.0})
    yield render.text_bundle(words)
    yield render.reasoning_bundle(words, is_open=True)
    yield card.bundle()
    yield summary.bundle()
    yield render.line_bundle(words)
    yield render.table_bundle([words, "b"], [[words, words]])
    yield media_bundle("image/png", "iVBORw0KGgo=", words)


def notebook_of(texts: list[str], chance: random.Random) -> Json:
    """Return a notebook with one cell per text; it is trusted, as the cells of a user's own kernel are."""
    cells = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "metadata": {"trusted": True},
            "source": "",
            "execution_count": 1,
            "outputs": [
                {"output_type": "display_data", "data": savable(bundle), "metadata": {}}
                for bundle in bundles(words, chance)
            ],
        }
        for number, words in enumerate(texts)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def savable(bundle: render.Bundle) -> Json:
    """Return the bundle as a front end saves it: JSON in UTF-8 has no lone surrogates."""
    found: Json = json.loads(json.dumps(bundle).encode("utf-8", "replace").decode("utf-8").replace("\\ud800", "?"))
    return found


def check_printed_notebook(watch: Watch, texts: list[str], soak: Soak) -> None:
    """Check the notebook as nbconvert prints it, without sanitising."""
    notebook = nbformat.from_dict(notebook_of(texts, soak.random))
    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    body, _ = exporter.from_notebook_node(notebook)
    watch.page.set_content(f"<!DOCTYPE html><html><body>{body}</body></html>", wait_until="load")
    watch.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    watch.check(texts, PRINTED)
    assert watch.page.locator(PRINTED).locator("details").count() >= len(texts), "nothing was printed"
    forbidden = watch.page.evaluate(FORBIDDEN_IN, [PRINTED, FORBIDDEN])
    assert not forbidden, f"{forbidden}\nshown: {texts!r}"[:6000]
    soak.counts["texts printed by nbconvert"] += len(texts)


def check_opened_notebook(watch: Watch, lab: Lab, texts: list[str], soak: Soak, http: httpx.Client) -> None:
    """Check the same notebook in JupyterLab, trusted."""
    body = notebook_of(texts, soak.random)
    http.put("api/contents/hostile.ipynb", json={"type": "notebook", "content": body}).raise_for_status()
    lab.open("hostile.ipynb")
    last = lab.cell(len(texts) - 1)
    last.scroll_into_view_if_needed()
    for number in range(0, len(texts), 5):
        lab.cell(number).scroll_into_view_if_needed()
        watch.page.wait_for_timeout(100)
    watch.page.evaluate("document.querySelectorAll('.jp-OutputArea details').forEach(one => one.open = true)")
    watch.check(texts, ".jp-OutputArea-output")
    assert watch.page.locator(".jp-OutputArea-output details").count() > 0, "nothing was shown"
    soak.counts["texts opened in JupyterLab"] += len(texts)


def run_live(watch: Watch, lab: Lab, count: int, soak: Soak, http: httpx.Client) -> None:
    """Run agent cells whose model writes hostile text, names of tools, arguments and results, in a notebook and with
    sessions of hostile names.
    """
    asked = soak.random.sample(range(SCRIPTED), count)
    cells = [f"%%agent --in sandbox --rounds 1\nround {number} it is" for number in asked] + [
        "%agent sessions",
        "%agent status",
    ]
    body = document(cells)
    name = "live <img src=x onerror=window.pwned=1>.ipynb"
    http.put(f"api/contents/{quote(name)}", json={"type": "notebook", "content": body}).raise_for_status()
    lab.open(quote(name))
    for number in range(len(cells)):
        lab.run(number)
        watch.check(cells[number], ".jp-OutputArea-output")
        assert lab.output(number).count() > 0, f"{cells[number]} showed nothing"
        soak.counts["agent cells run in JupyterLab"] += 1


async def title_sessions(server: AgentServer, titles: list[str]) -> None:
    async with server.client() as client:
        for number, title in enumerate(titles):
            reply = await client.post("agent/v1/sessions", json={"id": f"titled-{number}", "title": title[:500]})
            assert reply.status_code in (201, 400), reply.text


async def ask_to_bind(server: AgentServer, sessions: list[str]) -> list[str]:
    """Return pages on which a user confirms a binding; they contain the notebook's name and the session's title."""
    kernel = await server.start_kernel("<img src=x onerror=window.pwned=1>.ipynb")
    token = await server.kernel_token(kernel)
    async with server.client() as client:
        started = await start_turn(client, "hello", session="elsewhere")
        await followed(client, started["turn"])
    pages = []
    async with server.kernel_client(token) as client:
        for session in sessions:
            reply = await client.put("agent/v1/binding", json={"session": session})
            if reply.status_code == 202:
                pages.append(str(reply.json()["url"]))
    assert pages
    return pages


def confirm(watch: Watch, pages: list[str], soak: Soak) -> None:
    watch.page.set_extra_http_headers({"Authorization": f"token {TOKEN}"})  # a token in an address does not count here
    for url in pages:
        watch.page.goto(url)
        assert watch.page.locator("button").count() == 2
        watch.check(url)
        others = watch.page.locator("script, img, iframe, svg, style, link").count()
        assert others == 0, watch.page.content()
        soak.counts["confirm pages"] += 1


def drive(server: AgentServer, pages: list[str], soak: Soak) -> None:
    path = chromium()
    assert path is not None
    login = {"Authorization": f"token {TOKEN}"}
    with (
        browser(path, server.url, TOKEN) as lab,
        httpx.Client(base_url=server.url, headers=login, trust_env=False, timeout=60) as http,
    ):
        notices(lab)
        watch = Watch(lab.page, server.url)
        with watch.watching():
            soak.begin()
            confirm(watch, pages, soak)
            number = 0
            while soak.running or not number:
                for _ in range(8):
                    check_printed_notebook(watch, [hostile(soak.random) for _ in range(BATCH)], soak)
                check_opened_notebook(watch, lab, [hostile(soak.random) for _ in range(BATCH)], soak, http)
                if number % 4 == 0:
                    run_live(watch, lab, 3, soak, http)
                number += 1


def script(chance: random.Random) -> list[Json]:
    """Return rounds of hostile text; the arguments become the code of a card, its output and its traceback."""
    rounds: list[Json] = []
    for number in range(SCRIPTED):
        words = [hostile(chance) for _ in range(6)]
        call: dict[str, Any] = {"name": "python", "arguments": {"code": f"print({words[2]!r})\n{words[3]!r}"}}
        other = {"name": words[4] or "x", "arguments": {words[5]: words[5]}}
        rounds.append(
            {"when": f"round {number} it", "text": words[0], "deltas": 20, "delay": 0.01, "reasoning": words[1],
             "calls": [call, other], "loop": True}
        )  # fmt: skip
    return [*rounds, {"text": "Hello.", "loop": True}]


@pytest.mark.browser
@pytest.mark.soak(0.15)
async def test_xss(soak: Soak, agent_server: ServerFactory) -> None:
    server = await agent_server(script(soak.random), lab=True, options=("--LabApp.news_url=None",))
    titles = [hostile(soak.random) for _ in range(10)]
    await title_sessions(server, titles)
    pages = await ask_to_bind(server, [f"titled-{number}" for number in range(len(titles))])
    await asyncio.to_thread(drive, server, pages, soak)
