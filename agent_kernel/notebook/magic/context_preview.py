"""Implements ``%agent context``, which shows the text that the next turn of this notebook sends to the model, and how
full the context window is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, table_bundle
from agent_kernel.notebook.kernel.inspection import user_variables
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandContext, Json, session_path
from agent_kernel.notebook.magic.tools_command import called_tools

HELP = "show what the next turn sends to the model, and how full its context window is"
BAR = 24
NAMES = 12


class ContextPreview:
    """Shows the parts of the next request without running a turn. ``tool_fields`` returns the fields of a turn's body
    that determine its tools."""

    def __init__(self, context: CommandContext, tool_fields: Callable[[], Mapping[str, Any]]) -> None:
        self._context = context
        self._tool_fields = tool_fields

    def context(self, line: str) -> None:
        session, call = self._context.require_session(), self._context.server.call
        turns = self._context.list_turns(session)
        summaries = call("GET", session_path(session, "compact"))["summaries"]
        window = call("GET", "binding")["model"]["context_length"]
        tools = [tool["name"] for tool in called_tools(call("POST", "tools", self._tool_fields()))]
        used, names = _tokens_in_use(turns), user_variables(self._context.shell)
        if "--json" in CommandArguments(line).flags:
            facts = {"turns": len(turns), "summaries": len(summaries), "tokens": used, "window": window, "tools": tools}
            self._context.publish(json_bundle({**facts, "notes": session["metadata"], "variables": names}))
            return
        notes = [("not sent", f"your notes: {', '.join(session['metadata'])}")] if session["metadata"] else []
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        rows = [
            ("conversation", f"{len(turns)} turn{'s' * (len(turns) != 1)} of branch {session['branch']}"),
            ("summary", _summary(summaries)),
            ("window", _bar(used, window)),
            (
                "variables",
                f"those that the prompt names as {{name}} or -v: {', '.join(names[:NAMES])}{more}" * bool(names),
            ),
            ("tools", ", ".join(tools) or "none"),
            *notes,
            ("instead", "-c above sends the cells above in notebook order, -c 3,5-8 these cells, -c none nothing"),
        ]
        self._context.publish(table_bundle(("the next turn sends", ""), rows))


def _tokens_in_use(turns: Sequence[Json]) -> int:
    """Estimate the tokens in use: the next prompt starts with the tokens that the last answered turn read and wrote."""
    usages = [turn["usage"] for turn in turns if turn["usage"].get("prompt_tokens")]
    last = usages[-1] if usages else {}
    return int(last.get("prompt_tokens", 0) + last.get("completion_tokens", 0))


def _summary(summaries: Sequence[Json]) -> str:
    if not summaries:
        return "none; every turn is sent in full"
    return f"{len(summaries[-1]['text']):,} characters stand for the older turns (%agent compact undo)"


def _bar(used: int, window: int) -> str:
    if not window:
        return f"about {used:,} tokens; the model does not state how many it accepts"
    share = min(1.0, used / window)
    full = round(share * BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] about {used:,} of {window:,} tokens ({share:.0%})"
