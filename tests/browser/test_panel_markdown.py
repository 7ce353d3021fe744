"""Tests how the panel shows Markdown and media, and the buttons of a code block. Screenshots are written to
build/screenshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import SLOW_MS, Lab, lab_server
from tests.server import AgentServer

pytestmark = pytest.mark.browser

TEXT = """# Rain in May

It rained **more** than in `2023`: the mean is $\\mu = \\frac{1}{n}\\sum_i x_i$, see [the data](https://example.org/rain).

| month | mm | share |
|---|--:|:-:|
| May | 61 | 0.75 |
| June | 20 | 0.25 |

```python
import numpy as np

def mean(values):  # of what is there
    return np.nanmean(values) + 0.0
```

1. first *this*
2. then that

$$
\\int_0^1 e^{-x^2} \\, dx = \\frac{\\sqrt{\\pi}}{2} \\operatorname{erf}(1)
$$

> Nothing was left out.

```mermaid
flowchart LR
  A["Read **rain.csv**"] --> B{Gaps?}
  B -->|yes| C[Fill] --> D[Plot]
  B -->|no| D
```

```mermaid
flowchart LR
  A -->
```
"""
DRAWN = """
import io
import pandas as pd
from PIL import Image
frames = [Image.new("RGB", (160, 90), (40 * n, 120, 200)) for n in range(5)]
class Film:
    def _repr_png_(self):
        buffer = io.BytesIO()
        frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:], duration=100, loop=0)
        return buffer.getvalue()
display(Film())
display(frames[2])
pd.DataFrame({"month": ["May", "June"], "mm": [61.5, 20.25]})
"""
SCRIPT: list[dict[str, Any]] = [
    {"when": "tell", "text": TEXT, "deltas": 80, "delay": 0.02},
    {"when": "draw", "calls": [{"name": "python", "arguments": {"code": DRAWN}}]},
    {"when": "draw", "text": "There it is."},
    {"when": "Run this code", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"text": "ok", "loop": True},
]


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AgentServer]:
    with lab_server(tmp_path, SCRIPT, {"rain.ipynb": ["df = 1"]}, dark="dark" in request.node.name) as server:
        yield server


def see_diagrams(lab: Lab, panel: Locator, picture: str) -> None:
    """See a diagram drawn by JupyterLab, enlarged and as code, and the reason why another one is not drawn."""
    drawn, broken = panel.get_by_role("group", name="Code, mermaid").all()
    broken.scroll_into_view_if_needed()
    expect(broken).to_contain_text("The diagram cannot be drawn: Parse error on line 3", timeout=SLOW_MS)
    expect(broken.locator("pre")).to_contain_text("A -->")
    drawn.scroll_into_view_if_needed()
    image = drawn.get_by_role("img", name="Diagram")
    expect(image).to_be_visible(timeout=SLOW_MS)
    width = image.evaluate("image => image.naturalWidth")
    assert 200 < width < 1000, width
    lab.picture(picture)
    drawn.get_by_role("button", name="Enlarge").click()
    expect(lab.page.get_by_role("dialog")).to_be_visible()
    lab.picture(f"{picture}-enlarged")
    lab.page.keyboard.press("Escape")
    drawn.get_by_role("button", name="Show the code").click()
    expect(drawn.locator("pre")).to_contain_text('A["Read **rain.csv**"]')


def test_an_answer_is_read_and_its_code_goes_into_the_notebook(lab: Lab) -> None:
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent", exact=True)
    box = panel.get_by_label("Message to the agent")
    box.fill("tell me")
    box.press("Enter")
    expect(panel.locator(".ak-markdown pre code")).to_contain_text("import numpy", timeout=30_000)
    expect(panel.locator(".ak-turn")).to_have_attribute("data-state", "committed", timeout=30_000)
    expect(panel.locator(".ak-markdown math")).to_have_count(2)
    expect(panel.locator(".hljs-keyword").first).to_have_text("import")
    expect(panel.locator(".ak-markdown table td.ak-right").first).to_have_text("61")
    panel.locator(".ak-markdown h3").scroll_into_view_if_needed()
    lab.picture("panel-markdown")
    see_diagrams(lab, panel, "panel-diagram")
    block = panel.get_by_role("group", name="Code, python")
    block.get_by_role("button", name="Insert below the active cell").focus()
    lab.page.keyboard.press("Enter")
    expect(lab.page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(2, timeout=30_000)
    expect(lab.cell(1).locator(".cm-content")).to_contain_text("np.nanmean")
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("status")).to_have_text("Copied")
    assert "def mean(values):" in lab.page.evaluate("navigator.clipboard.readText()")
    block.get_by_role("button", name="Ask the agent to run this in the sandbox").click()
    expect(panel.locator(".ak-turn")).to_have_count(2, timeout=30_000)
    expect(panel.locator(".ak-turn").last).to_have_attribute("data-state", "committed", timeout=60_000)
    expect(panel.locator(".ak-call")).to_contain_text("sandbox")


def test_media_in_the_dark_and_where_there_is_little_room(server: AgentServer, lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 700, "height": 1000})
    lab.open("rain.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    panel = lab.page.get_by_role("region", name="Agent", exact=True)
    box = panel.get_by_label("Message to the agent")
    box.fill("draw it")
    panel.get_by_label("Where code runs").select_option("sandbox")
    box.press("Enter")
    expect(panel.locator(".ak-turn")).to_have_attribute("data-state", "committed", timeout=90_000)
    media = panel.locator(".ak-media")
    expect(media).to_have_count(3, timeout=30_000)
    expect(media.get_by_text("2 rows, 2 columns")).to_be_visible(timeout=30_000)
    player = media.get_by_role("group", name="Film")
    player.get_by_role("button", name="Next frame").click()
    expect(player.get_by_role("button", name="Play")).to_be_visible()
    lab.picture("panel-media-dark-narrow")
    media.get_by_role("button", name="Enlarge").click()
    expect(lab.page.get_by_role("dialog")).to_be_visible()
    lab.picture("panel-media-enlarged")
    lab.page.keyboard.press("Escape")
    expect(lab.page.get_by_role("dialog")).to_have_count(0)
    with lab.page.expect_download() as saved:
        media.first.get_by_role("button", name="Save as a file").click()
    assert saved.value.suggested_filename.endswith(".png")
    box.fill("tell me")
    box.press("Enter")
    expect(panel.locator(".ak-turn")).to_have_count(2, timeout=30_000)
    expect(panel.locator(".ak-turn").last).to_have_attribute("data-state", "committed", timeout=60_000)
    lab.picture("panel-markdown-dark-narrow")
    see_diagrams(lab, panel, "panel-diagram-dark-narrow")
