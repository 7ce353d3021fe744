"""``%agent tools``: lists the tools the model can call in this notebook, where each runs, and whether it asks first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.notebook.display.render import PLACES, json_bundle, line_bundle, table_bundle
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, Say
from agent_kernel.notebook.server_client import ServerClient

HELP = "[--json]: list the tools the model can call here, where each runs, and whether it asks first"
ASKS = {"auto": "no", "ask": "yes", "deny": "is denied"}
SOURCES = {"user": "your function", "mcp": "an MCP server", "external": "another program"}
TIMEOUT_S = 60.0
"""MCP servers are connected to list their tools, which may take a while."""


def show_tools(rest: str, server: ServerClient, declared: Callable[[], Mapping[str, Any]], say: Say) -> None:
    """Show the tools of the next turn. ``declared`` returns the abilities that a turn of this notebook declares."""
    answer = server.call("POST", "tools", declared(), timeout=TIMEOUT_S)
    if "--json" in CommandArguments(rest).flags:
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
