"""Formats the text of ``%agent help``: commands grouped by task."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType

WIDTH = 100
LEFT = 14
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Ask": ("ask", "fix", "explain", "improve", "stop", "approve", "show", "panel"),
        "What is going on": ("status", "context", "usage", "help"),
        "What the agent may do, and where": ("allow", "deny", "permissions", "in", "where", "keep", "take", "rebuild"),
        "What the agent can use": ("tools", "skills", "trust", "model", "unload", "start"),
        "Versions and branches": ("undo", "versions", "branch", "branches", "switch", "drop", "compact"),
        "Conversations": ("new", "sessions", "search", "use", "unbind", "fork", "title", "tags", "note", "private"),
        "Keep, pass on, forget": ("export", "import", "freeze", "replay", "clear", "delete"),
    }
)


def format_help(commands: Mapping[str, str]) -> str:
    """Return the help text for ``commands``. Commands that belong to no group are listed last, under "More"."""
    grouped = {name for group in GROUPS.values() for name in group}
    more = tuple(name for name in commands if name not in grouped)
    groups = {**GROUPS, **({"More": more} if more else {})}
    return "\n\n".join("\n".join([title, *_lines(commands, names)]) for title, names in groups.items())


def format_command(name: str, text: str) -> str:
    return "\n".join(_lines({name: text}, (name,)))


def _lines(commands: Mapping[str, str], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name in commands:
            yield from _line(f"  %agent {name:<{LEFT - 2}}", commands[name])


def _line(left: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=left, subsequent_indent=" " * len(left), break_on_hyphens=False)
