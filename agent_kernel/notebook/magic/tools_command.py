"""Implements ``%agent tools``, which lists the tools that the model can call in this notebook, where each runs, and
whether the user is asked before a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import PLACES
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandContext

HELP = "[--json]: list the tools the model can call here, where each runs, and whether it asks first"
ASKS = {"auto": "no", "ask": "yes", "deny": "is denied"}
SOURCES = {"user": "your function", "mcp": "an MCP server", "external": "another program"}
TIMEOUT_S = 60.0
"""Time limit in seconds for the server's answer. To list the tools of MCP servers, the server has to connect to each of
them, which may take a while."""


def show_tools(line: str, context: CommandContext, tool_fields: Mapping[str, Any]) -> None:
    """Show the tools that the model calls in the next turn, and the tools that it never calls. ``tool_fields`` are the
    fields of a turn's body that determine its tools."""
    arguments = CommandArguments(line)
    answer = context.server.call("POST", "tools", tool_fields, timeout=TIMEOUT_S)
    rows = [
        (
            tool["name"],
            _first_sentence(tool["description"]),
            PLACES.get(tool["where"], tool["where"]),
            f"{ASKS[tool['permission']]} ({tool['because']})",
            SOURCES.get(tool["source"], ""),
        )
        for tool in called_tools(answer)
    ]
    context.list(
        arguments, answer, ("tool", "", "runs", "asks", ""), rows, "The model can call no tool in this notebook."
    )
    for note in answer["notes"] if "--json" not in arguments.flags else ():
        context.print_line(note)


def called_tools(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tools that the model of the conversation calls. ``answer`` is the response of the route ``POST
    tools``."""
    return [tool for tool in answer["tools"] if tool["called"]]


def _first_sentence(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0].rstrip(".")
    return first if len(first) <= 120 else f"{first[:119]}…"
