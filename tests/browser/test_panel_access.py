"""Tests the accessibility of the panel: axe-core finds no violation, in three themes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.lab import SLOW_MS, Lab, use_theme
from tests.browser.panel import ask, ended, open_panel, say, use_kernel, violations

pytestmark = pytest.mark.browser

THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")
SHEETS = ("/sessions", "/help", "/settings", "/model")
ANSWER = """It is **42**, see [there](https://example.org).

```python
print(1)
```

$x^2$

| a | b |
|---|---|
| 1 | 2 |
"""
SCRIPT: list[dict[str, Any]] = [
    {"when": "add them", "calls": [{"name": "python", "arguments": {"code": "print(6 * 7)"}}]},
    {"when": "add them", "reasoning": "six times seven", "text": ANSWER},
    {"text": "ok", "loop": True},
]


def in_each_theme(lab: Lab) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = {}
    for theme in THEMES:
        use_theme(lab.page, theme)
        shown[theme] = violations(lab.page)
    return shown


def test_every_state_can_be_read_aloud_and_told_apart(lab: Lab) -> None:
    nothing: dict[str, list[str]] = {theme: [] for theme in THEMES}
    panel = use_kernel(open_panel(lab))
    assert in_each_theme(lab) == nothing
    turn = ask(panel, "add them")
    once = panel.get_by_role("button", name="Run once", exact=True)
    once.wait_for(timeout=SLOW_MS)
    assert in_each_theme(lab) == nothing
    once.click()
    ended(turn)
    turn.locator("button[aria-expanded]").first.click()
    assert in_each_theme(lab) == nothing
    for sheet in SHEETS:
        say(panel, sheet)
        panel.get_by_role("dialog").wait_for(timeout=SLOW_MS)
        assert violations(lab.page) == [], sheet
        lab.page.keyboard.press("Escape")
