"""Compares the guide of the panel with the panel itself."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_guide_names_every_command_and_key_of_the_panel() -> None:
    guide = (ROOT / "docs/panel.md").read_text()
    commands = re.findall(r'^    name: "([\w-]+)",$', (ROOT / "ui/src/conversation/commands.ts").read_text(), re.M)
    assert len(commands) > 15
    told = set(re.findall(r"`/([\w-]+)[^`]*`", guide))
    assert set(commands) - told == set()
    keys = re.search(r"(?m)^.*Alt\+Enter.*$", guide)
    assert keys is not None
    assert {"Alt+Up", "Alt+Down"} < set(re.findall(r"Alt\+\w+", keys[0]))
