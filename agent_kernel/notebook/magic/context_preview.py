"""``%agent context``: what the next turn of this notebook sends to the model, and how full the context window is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, table_bundle
from agent_kernel.notebook.kernel.inspection import OWN
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, Say
from agent_kernel.notebook.server_client import ServerClient, quote_segment

HELP = "show what the next turn sends to the model, and how full its context window is"
BAR = 24
NAMES = 12


class ContextPreview:
    """Shows the parts of the next request without running a turn. ``declared`` returns the abilities that a turn of
    this notebook declares."""

    def __init__(
        self,
        shell: Any,
        server: Callable[[], ServerClient],
        bound: Callable[[], Mapping[str, Any]],
        declared: Callable[[], Mapping[str, Any]],
        say: Say,
    ) -> None:
        self._shell = shell
        self._server = server
        self._bound = bound
        self._declared = declared
        self._say = say

    def tell(self, rest: str) -> None:
        session, call = self._bound(), self._server().call
        path = f"sessions/{quote_segment(str(session['id']))}"
        turns = call("GET", f"{path}/items?limit=0")["turns"]
        summaries = call("GET", f"{path}/compact")["summaries"]
        window = call("GET", "binding")["model"]["context_length"]
        tools = [tool["name"] for tool in call("POST", "tools", self._declared())["tools"]]
        used = _tokens_in_use(turns)
        if "--json" in CommandArguments(rest).flags:
            facts = {"turns": len(turns), "summaries": len(summaries), "tokens": used, "window": window, "tools": tools}
            self._say(json_bundle({**facts, "notes": session["metadata"], "variables": self._variables()}))
            return
        names = self._variables()
        notes = [("not sent", f"your notes: {', '.join(session['metadata'])}")] if session["metadata"] else []
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        self._say(
            table_bundle(
                ("the next turn sends", ""),
                [
                    ("conversation", f"{len(turns)} turn{'s' * (len(turns) != 1)} of branch {session['branch']}"),
                    ("summary", _summary(summaries)),
                    ("window", _bar(used, window)),
                    ("variables", f"those you name, as {{name}} or -v: {', '.join(names[:NAMES])}{more}" * bool(names)),
                    ("tools", ", ".join(tools) or "none"),
                    *notes,
                    ("instead", "-c above: the cells above in the order of the page; -c none; -c 3,5-8"),
                ],
            )
        )

    def _variables(self) -> list[str]:
        hidden = getattr(self._shell, "user_ns_hidden", {})
        return [
            name
            for name, value in self._shell.user_ns.items()
            if not name.startswith("_") and name not in OWN and not (name in hidden and hidden[name] is value)
        ]


def _tokens_in_use(turns: Sequence[Mapping[str, Any]]) -> int:
    """Estimate the tokens in use: what the last answered turn has read and written is the start of the next prompt."""
    usages = [turn["usage"] for turn in turns if turn["usage"].get("prompt_tokens")]
    last = usages[-1] if usages else {}
    return int(last.get("prompt_tokens", 0) + last.get("completion_tokens", 0))


def _summary(summaries: Sequence[Mapping[str, Any]]) -> str:
    if not summaries:
        return "none; every turn is sent in full"
    return f"{len(summaries[-1]['text']):,} characters stand for the older turns (%agent compact undo)"


def _bar(used: int, window: int) -> str:
    if not window:
        return f"about {used:,} tokens; how many the model takes is not known"
    share = min(1.0, used / window)
    full = round(share * BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] about {used:,} of {window:,} tokens ({share:.0%})"
