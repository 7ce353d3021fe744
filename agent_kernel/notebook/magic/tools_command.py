"""``%agent tools``: what the model can call in this notebook, where each call runs, and whether it asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.notebook.display.render import PLACES, json_bundle, line_bundle, table_bundle
from agent_kernel.notebook.magic.conversation_commands import Say, Words
from agent_kernel.notebook.server_client import Server

HELP = "[--json]: what the model can call here, where each call runs, and whether it asks"
ASKS = {"auto": "no", "ask": "yes", "deny": "is denied"}
SOURCES = {"user": "your function", "mcp": "an MCP server", "external": "another program"}
TIMEOUT_S = 60.0
"""MCP servers are asked what they have."""


def tell(rest: str, server: Server, declared: Callable[[], Mapping[str, Any]], say: Say) -> None:
    """``declared`` is what a turn of this notebook would say of itself."""
    answer = server.call("POST", "tools", declared(), timeout=TIMEOUT_S)
    if "--json" in Words(rest).flags:
        say(json_bundle(answer))
        return
    rows = [
        (
            tool["name"],
            _first_sentence(tool["description"]),
            PLACES.get(tool["where"], tool["where"]),
            f"{ASKS[tool['permission']]} ({tool['because']})",
            SOURCES.get(tool["source"], ""),
        )
        for tool in answer["tools"]
    ]
    say(
        table_bundle(("tool", "", "runs", "asks", ""), rows)
        if rows
        else line_bundle("The model can call nothing here.")
    )
    for note in answer["notes"]:
        say(line_bundle(note))


def _first_sentence(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0].rstrip(".")
    return first if len(first) <= 120 else f"{first[:119]}…"
