"""Measures what the panel costs its page: while an answer of 20,000 tokens streams, when a session of 500 turns opens,
and at the start of JupyterLab. Chromium and servers are real; the model is scripted.

Run alone on the machine: make bench ARGS="-k panel". The figures are printed. The tests assert counts and shares that
do not depend on the machine's speed, and the documented times for an idle machine.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import Lab, browser, write_notebook
from tests.conftest import chromium
from tests.narrowing import not_none
from tests.server import TOKEN, AgentServer, followed, start_turn

TOKENS = int(os.environ.get("PANEL_TOKENS", "20000"))
PER_S = int(os.environ.get("PANEL_TOKENS_PER_S", "250"))
PIECES_PER_S = 100
TURNS = int(os.environ.get("PANEL_TURNS", "500"))
PAIRS = int(os.environ.get("PANEL_PAIRS", "10"))
WINDOW = 20
"""Turns that the panel fetches when it opens a session: `PAGE` of ui/src/conversation/conversation.ts."""
IDLE_S = 15
KEY_EVERY_MS = 120
LAB = ("--LabApp.news_url=None", "--LabApp.expose_app_in_browser=True")

SECTION = """
## Part {number}: what the *numbers* say

The mean of sample {number} is $\\mu_{{{number}}} = \\frac{{1}}{{n}} \\sum_i x_i$ and its variance is \\(\\sigma^2\\),
as `df.describe()` says; **none** of the outliers of [the source](https://example.org/{number}) was left out, since each
of them was looked at by hand, one after the other, and found to be what a rainy month in the north looks like.

| month | mm | share |
|---|--:|:-:|
| May | {number} | 0.5 |
| June | 3 | 0.25 |

```python
import numpy as np

def part_{number}(values: list[float]) -> float:
    # the mean of what is there
    total = 0.0
    for value in values:
        if np.isnan(value):
            continue
        total += value
    return total / max(1, len(values))

print(part_{number}([1.0, 2.0, float("nan")]))
```

1. first *this* and then `that`
2. then **both**, with $x_{number}$
   - and one below

$$
\\int_0^{{{number}}} e^{{-x^2}} \\, dx = \\frac{{\\sqrt{{\\pi}}}}{{2}} \\operatorname{{erf}}({number})
$$
"""

OBSERVE = """() => {
    window.measured = {long: [], keys: []};
    new PerformanceObserver(list => {
        for (const task of list.getEntries()) window.measured.long.push([task.startTime, task.duration]);
    }).observe({type: 'longtask'});
    const box = document.querySelector('.ak-composer textarea');
    box.addEventListener('keydown', event => {
        const began = event.timeStamp;
        requestAnimationFrame(() => {
            const after = new MessageChannel();
            after.port1.onmessage = () => window.measured.keys.push([began, performance.now() - began]);
            after.port2.postMessage(null);
        });
    });
}"""
"""From when the browser got the key to after the frame that it changed: what a person feels."""

OPENED = """async ([title, count]) => {
    const rows = [...document.querySelectorAll('.ak-session-open')];
    const row = rows.find(one => one.querySelector('.ak-session-title').textContent === title);
    const began = performance.now();
    row.click();
    const frame = () => new Promise(requestAnimationFrame);
    for (;;) {
        await frame();
        const turns = document.querySelectorAll('.ak-turn');
        const last = turns[turns.length - 1];
        const log = document.querySelector('.ak-turns');
        if (document.querySelector('.ak-title-text')?.textContent === title && turns.length >= count) {
            if (!last) break;
            const place = last.getBoundingClientRect(), seen = log.getBoundingClientRect();
            if (place.bottom > seen.top && place.top < seen.bottom) break;
        }
        if (performance.now() - began > 60000) throw new Error(`not opened: ${turns.length} turns`);
    }
    await new Promise(done => { const c = new MessageChannel(); c.port1.onmessage = done; c.port2.postMessage(0); });
    return performance.now() - began;
}"""


def answer() -> str:
    """Return an answer of at least TOKENS words."""
    sections: list[str] = []
    count = 0
    while count < TOKENS:
        sections.append(SECTION.format(number=len(sections) + 1))
        count += len(sections[-1].split())
    return "".join(sections)


@contextmanager
def lab_of(folder: Path, script: list[dict[str, Any]], **options: Any) -> Iterator[tuple[AgentServer, Lab]]:
    path = not_none(chromium())
    server = AgentServer(folder, script, options=LAB, lab=True, **options)
    asyncio.run(server.start())
    with server:
        write_notebook(server.root, "rain.ipynb", ["1"])
        with browser(path, server.url, TOKEN) as lab:
            yield server, lab


def open_panel(lab: Lab) -> Locator:
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent", exact=True)
    expect(panel.get_by_label("Message to the agent")).to_be_visible(timeout=30_000)
    return panel


def heap(page: Page) -> float:
    """Return the MB of JavaScript heap in use after a garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")) / 1e6


def type_letters(page: Page, until: float) -> None:
    """Type letters into the composer, one every KEY_EVERY_MS, until the time ``until``."""
    while time.monotonic() < until:
        page.keyboard.press("a")
        page.wait_for_timeout(KEY_EVERY_MS)


def pop_measurements(page: Page) -> tuple[list[float], list[float]]:
    """Return the milliseconds of long tasks and of key presses since the last call."""
    found = page.evaluate("() => { const m = window.measured; window.measured = {long: [], keys: []}; return m; }")
    return [ms for _, ms in found["long"]], [ms for _, ms in found["keys"]]


def format_values(name: str, values: list[float]) -> str:
    if len(values) < 2:
        return f"{name}: {values}"
    return f"{name}: median {median(values):.1f}, p99 {quantiles(values, n=100)[98]:.1f}, n {len(values)}"


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_panel_stream_of_20_000_tokens_leaves_the_page_to_the_person(tmp_path: Path) -> None:
    text = answer()
    seconds = TOKENS / PER_S
    pieces = int(seconds * PIECES_PER_S)
    script = [
        {"when": "tell all", "text": text, "deltas": pieces, "delay": 1 / PIECES_PER_S},
        {"text": "ok", "loop": True},
    ]
    with lab_of(tmp_path, script) as (_, lab):
        page = lab.page
        panel = open_panel(lab)
        box = panel.get_by_label("Message to the agent")
        page.evaluate(OBSERVE)
        box.focus()
        page.wait_for_timeout(3_000)
        pop_measurements(page)
        type_letters(page, time.monotonic() + IDLE_S)
        idle_long, idle_keys = pop_measurements(page)
        empty = heap(page)
        box.fill("tell all")
        box.press("Enter")
        expect(panel.get_by_role("log")).to_contain_text("Part 1:", timeout=30_000)
        began = time.monotonic()
        heaps: list[float] = []
        while panel.locator(".ak-turn").last.get_attribute("data-state") == "open":
            type_letters(page, time.monotonic() + 5)
            assert time.monotonic() - began < 600, "it does not end"
        took = time.monotonic() - began
        long, keys = pop_measurements(page)
        page.wait_for_timeout(2_000)
        after, _ = pop_measurements(page)
        heaps.append(heap(page))
        page.wait_for_timeout(5_000)
        heaps.append(heap(page))
        shown = panel.locator(".ak-turns").evaluate("root => root.textContent.length")
        more = panel.locator(".ak-markdown .ak-more").count()
        words = len(text.split())
        per_thousand = len(long) / words * 1_000
        print(
            f"\n{words} tokens, {len(text)} characters, in {took:.0f} s; on the page {shown} characters"
            f"\nlong tasks over 50 ms: {len(long)} ({per_thousand:.2f} per 1,000 tokens), together {sum(long):.0f} ms, "
            f"longest {max(long, default=0):.0f} ms; at its end {[round(ms) for ms in after]}; "
            f"on the idle page {len(idle_long)} in {IDLE_S} s"
            f"\n{format_values('ms from a key to its frame, streaming', keys)}\n{format_values('idle', idle_keys)}"
            f"\nheap after garbage is collected: {empty:.1f} MB before, {heaps} MB after"
        )
        assert not more, "the answer was cut"
        assert shown > len(text) / 2
        assert per_thousand < 1, "the page stands still too often"
        assert median(keys) < 50, "letters come late"
        assert heaps[-1] - empty < 60, "the page keeps too much of an answer"
        assert heaps[-1] < heaps[0] * 1.1, "it goes on growing"


async def fill_session(server: AgentServer, session: str, turns: int) -> None:
    async with server.client() as client:
        await client.post("agent/v1/sessions", json={"id": session, "title": session})
        for number in range(turns):
            started = await start_turn(client, f"question {number}", session=session)
            await followed(client, started["turn"])
        await client.patch(f"agent/v1/sessions/{session}", json={"title": session})


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_panel_opens_a_session_of_500_turns_like_one_of_a_few(tmp_path: Path) -> None:
    text = SECTION.format(number=7)
    path = not_none(chromium())
    server = AgentServer(tmp_path, [{"text": text, "loop": True}], options=LAB, lab=True)
    asyncio.run(server.start())
    with server:
        write_notebook(server.root, "rain.ipynb", ["1"])
        lengths = {"long": TURNS, "short": WINDOW, "single": 1}
        for session, turns in lengths.items():
            asyncio.run(fill_session(server, session, turns))
        with browser(path, server.url, TOKEN) as lab:
            panel = open_panel(lab)
            times: dict[str, list[float]] = {session: [] for session in lengths}
            for _ in range(6):
                for session, found in times.items():
                    panel.get_by_role("button", name="Menu").click()
                    lab.page.get_by_role("menuitem", name="All conversations").click()
                    expect(lab.page.get_by_text(session, exact=True).first).to_be_visible(timeout=30_000)
                    found.append(lab.page.evaluate(OPENED, [session, min(WINDOW, lengths[session])]))
            drawn = {name: median(found[1:]) for name, found in times.items()}
            print(f"\nms from the click to the last turn in sight, medians of 5: {drawn}")
            assert drawn["long"] < 3 * drawn["short"], "a long session is not opened by its end"
            assert drawn["long"] < 1_000


START = """async () => {
    while (!window.jupyterapp) await new Promise(done => setTimeout(done, 5));
    await window.jupyterapp.restored;
    return performance.now();
}"""


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_panel_costs_the_start_of_lab_little(tmp_path: Path) -> None:
    path = not_none(chromium())
    servers = {
        "with": AgentServer(tmp_path / "with", [], options=LAB, lab=True),
        "without": AgentServer(tmp_path / "without", [], options=LAB, lab=True),
    }
    config = tmp_path / "without" / "config" / "labconfig"
    config.mkdir(parents=True)
    (config / "page_config.json").write_text('{"disabledExtensions": {"agent-kernel": true}}')
    try:
        times: dict[str, list[float]] = {"with": [], "without": []}
        for server in servers.values():
            asyncio.run(server.start())
        with browser(path, servers["with"].url, TOKEN) as lab:
            for number in range(PAIRS + 2):  # the first two fill the caches
                order = list(servers) if number % 2 else list(servers)[::-1]
                for name in order:
                    lab.page.goto("about:blank")
                    lab.page.goto(f"{servers[name].url}lab?token={TOKEN}&reset")
                    times[name].append(lab.page.evaluate(START))
                    has = lab.page.evaluate("document.querySelector('#agent-kernel-panel') !== null")
                    assert has == (name == "with")
                    lab.page.wait_for_timeout(1_500)
        pairs = [a - b for a, b in zip(times["with"][2:], times["without"][2:], strict=True)]
        print(
            f"\nms from the address to JupyterLab restored: with the panel {median(times['with'][2:]):.0f}, without "
            f"{median(times['without'][2:]):.0f}; difference of pairs: median {median(pairs):.0f}, all "
            f"{sorted(round(pair) for pair in pairs)}"
        )
        assert median(pairs) < 0.1 * median(times["without"][2:]), "the start of JupyterLab is slower"
    finally:
        for server in servers.values():
            server.sweep()
