"""Tests an agent cell in real JupyterLab, as a user uses it. Screenshots are written to build/screenshots."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, write_settings
from tests.server import AgentServer

pytestmark = pytest.mark.browser

CODE = """df = pd.DataFrame({'month': range(1, 13), 'rain': [5, 3, 4, 2, 1, 0, 0, 1, 2, 4, 6, 7]})
print('rows:', len(df))
df.plot(x='month', y='rain', figsize=(5, 2.5), title='Rain by month')"""
ANSWER = """The **rainiest** month is December with `7` units, and `x < y` holds.

| month | rain |
|---|---|
| 11 | 6 |
| 12 | 7 |

```python
if df.rain.max() > 6:
    print('<wet>')
```

Math $a < b$ stays math, <script>window.broken = true</script><img src=x onerror="window.broken = true"> stays text.
"""
SCRIPT: list[dict[str, Any]] = [
    {
        "when": "plot the rain",
        "reasoning": "A line over the months.",
        "text": "I will plot it.",
        "calls": [{"name": "python", "arguments": {"code": CODE}}],
    },
    {"when": "plot the rain", "text": ANSWER, "deltas": 60, "delay": 0.03, "gate": "go"},
    {"when": "a long story", "text": "word " * 2000, "deltas": 2000, "delay": 0.05},
    {"text": "ok", "loop": True},
]
CELLS = ["%%agent\nplot the rain by month", "df.rain.max()", "%%agent\na long story", "%agent status"]
NOTEBOOKS = {"rain.ipynb": CELLS}
TRAITS = {"python_in": "live"}


def distrust(notebook: Path) -> None:
    """Change the notebook outside of Jupyter. Jupyter no longer trusts it, sanitises its HTML and runs no
    script of it.
    """
    body = json.loads(notebook.read_text())
    body["metadata"]["changed"] = "elsewhere"
    notebook.write_text(json.dumps(body))


def test_a_person_approves_reads_and_goes_on_and_finds_it_all_again(lab: Lab, server: AgentServer) -> None:
    lab.open("rain.ipynb")
    lab.run(0, wait=False)
    card = lab.cell(0).locator("details", has_text="python in your kernel")
    expect(card).to_have_attribute("open", "", timeout=30_000)
    expect(card).to_contain_text("import pandas as pd")
    expect(card).to_contain_text("waiting for your answer")
    lab.picture("agent-cell-asks")
    lab.answer("y")

    answer = lab.cell(0).locator(".jp-RenderedMarkdown").last
    expect(answer).to_contain_text("rainiest", timeout=30_000)
    early = len(answer.inner_text())
    lab.picture("agent-cell-streams")
    (server.directory / "go").touch()
    lab.wait_idle()
    expect(answer).to_contain_text("stays text.")
    assert len(answer.inner_text()) > early, "it grew while it was read"
    lab.picture("agent-cell-done")
    the_cell_shows_everything(lab)
    assert lab.cell(0).locator("details[open]").count() == 0, "what is done is collapsed"

    lab.run(1)
    expect(lab.output(1)).to_contain_text("7")
    lab.save()

    distrust(server.root / "rain.ipynb")
    write_settings(server, "@jupyterlab/apputils-extension/themes", {"theme": "JupyterLab Dark"})
    lab.open("rain.ipynb")
    the_cell_shows_everything(lab)
    lab.cell(0).locator("summary", has_text="python in your kernel").click()
    expect(lab.cell(0).locator("details", has_text="rows: 12")).to_have_attribute("open", "")
    assert lab.page.evaluate("document.body.dataset.jpThemeLight") == "false"
    lab.picture("agent-cell-untrusted-dark")


def the_cell_shows_everything(lab: Lab) -> None:
    cell = lab.cell(0)
    expect(cell.locator("summary", has_text="reasoning")).to_be_visible()
    expect(cell.locator("summary", has_text="python in your kernel · done")).to_be_visible()
    expect(cell.locator(".jp-RenderedImage img")).to_be_visible()
    expect(cell.locator(".jp-RenderedMarkdown strong")).to_have_text("rainiest")
    expect(cell.locator(".jp-RenderedMarkdown table")).to_be_visible()
    expect(cell.locator(".jp-RenderedMarkdown pre")).to_contain_text("print('<wet>')")
    expect(cell.locator(".jp-RenderedMarkdown").last).to_contain_text("<script>window.broken = true</script>")
    expect(cell.get_by_text("tokens read")).to_be_visible()
    assert lab.page.evaluate("window.broken") is None


def test_the_stop_keys_end_a_turn_in_one_line_and_keep_what_was_said(lab: Lab) -> None:
    lab.open("rain.ipynb")
    lab.run(2, wait=False)
    answer = lab.cell(2).locator(".jp-RenderedMarkdown").last
    expect(answer).to_contain_text("word word", timeout=30_000)
    started = time.monotonic()
    lab.interrupt()
    expect(lab.cell(2).locator(".jp-OutputArea-output").last).to_have_text("Agent: stopped; the answer so far is kept.")
    lab.wait_idle()
    print(f"from the keys to an idle kernel: {time.monotonic() - started:.2f} s")
    expect(answer).to_contain_text("(cut short)")
    lab.run(3)
    expect(lab.cell(3).locator("table")).to_contain_text("rain.ipynb")
    lab.picture("agent-cell-stopped")
