"""Implements ``%agent usage``, which shows the tokens, seconds and tool calls of a session as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, table_bundle
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandContext, session_path

HELP = "show tokens and seconds of this session by model and day, and its tool calls; --json"


def show_usage(line: str, context: CommandContext) -> None:
    """Show the usage of the session of this notebook, as tables, or as JSON with ``--json``."""
    usage = context.server.call("GET", session_path(context.require_session(), "usage"))
    if "--json" in CommandArguments(line).flags:
        context.publish(json_bundle(usage))
        return
    rows = [("all", *_cost(usage["total"]))]
    for part in ("models", "days", "branches"):
        rows += [
            (f"{part.removesuffix('es').removesuffix('s')} {name}", *_cost(cost)) for name, cost in usage[part].items()
        ]
    context.publish(table_bundle(("", "turns", "tokens read", "of them reused", "tokens written", "seconds"), rows))
    tools = [
        (name, tool["count"], ", ".join(f"{n} {status}" for status, n in tool["outcomes"].items()), tool["seconds"])
        for name, tool in usage["tools"].items()
    ]
    if tools:
        context.publish(table_bundle(("tool", "calls", "outcomes", "seconds"), tools))


def _cost(cost: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the usage as columns of a table row. Summaries of the conversation are counted separately from turns,
    because the user did not request them."""
    turns = f"{cost['turns']} + {cost['summaries']} summaries" if cost["summaries"] else cost["turns"]
    about = "about " if cost["estimated"] else ""
    read, written = f"{about}{cost['prompt_tokens']:,}", f"{about}{cost['completion_tokens']:,}"
    return turns, read, f"{cost['reused_tokens']:,}", written, round(cost["seconds"], 1)
