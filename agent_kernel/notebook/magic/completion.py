"""Tab completion after ``%agent`` and ``%%agent``: commands, options, sessions, models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.notebook.magic.commands import HELP
from agent_kernel.notebook.server_client import Server, quoted
from agent_kernel.notebook.turn.cell_options import BY_FLAG
from agent_kernel.notebook.turn.execution_target import CHOICES
from agent_kernel.notebook.turn.session_permissions import KINDS

MAGICS = ("%agent", "%%agent")
ASK_S = 0.5
KEEP_S = 10.0

WORDS: Mapping[str, tuple[str, ...]] = {
    "private": ("off",),
    "fork": ("--into", "--use"),
    **dict.fromkeys(("sessions", "branches", "versions", "tags", "note", "permissions"), ("--json",)),
    "search": ("--here", "--all", "--json"),
    "allow": (*KINDS, "ask"),
    "deny": tuple(KINDS),
    **dict.fromkeys(("where", "in"), (*CHOICES, "default")),
    "rebuild": ("--yes",),
    "trust": ("remove",),
    "stop": ("server",),
    "replay": ("--verify", "--live", "--turn", "--json"),
    "freeze": ("--in-place", "--yes"),
    "context": ("--json",),
    "ask": tuple(BY_FLAG),
    "fix": tuple(BY_FLAG),
}
"""What may follow a command, where nobody has to be asked."""


class Completion:
    """For the lines of both magics alone. Silent when the server does not answer within ASK_S seconds."""

    def __init__(self, server: Callable[[], Server | None]) -> None:
        self._server = server
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._asked: dict[str, Callable[[], list[str]]] = {
            "use": self._sessions,
            "delete": self._sessions,
            "switch": self._branches,
            "drop": self._branches,
            "take": self._variables,
            "model": lambda: ["pull", "unload", "reset", *self._models(), *self._engines()],
        }

    @context_matcher(priority=100)  # type: ignore[untyped-decorator]  # of IPython
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        words = context.text_until_cursor.split()
        if not words or words[0] not in MAGICS or (len(words) == 1 and context.token):
            return {"completions": []}
        before = words[1:-1] if context.token else words[1:]
        found = self._option(before) if words[0] == "%%agent" else self._command(before)
        fitting = [SimpleCompletion(text) for text in found if text.startswith(context.token)]
        return {"completions": fitting, "suppress": bool(fitting)}

    def _option(self, before: list[str]) -> list[str]:
        option = BY_FLAG.get(before[-1]) if before else None
        if option is not None and option.constant is None:
            asked: dict[str, Callable[[], list[str]]] = {
                "session": self._sessions,
                "branch": self._branches,
                "model": lambda: self._models() + self._engines(),
                "page": lambda: ["above", "none"],
            }
            return asked[option.sets]() if option.sets in asked else list(option.choices)
        return list(BY_FLAG)

    def _command(self, before: list[str]) -> list[str]:
        if not before:
            return list(HELP)
        if before == ["model", "pull"]:
            return self._models()
        asked = self._asked.get(before[0]) if len(before) == 1 else None
        return asked() if asked else list(WORDS.get(before[0], ())) if len(before) == 1 else []

    def _sessions(self) -> list[str]:
        return self._listed("sessions", "sessions", "id")

    def _branches(self) -> list[str]:
        session = self._answer("binding").get("session")
        return self._listed(f"sessions/{quoted(session['id'])}/branches", "branches", "name") if session else []

    def _variables(self) -> list[str]:
        session = self._answer("binding").get("session")
        return self._listed(f"sessions/{quoted(session['id'])}/variables", "variables", "name") if session else []

    def _models(self) -> list[str]:
        return self._listed("models", "models", "name")

    def _engines(self) -> list[str]:
        return self._listed("models", "engines", "name")

    def _listed(self, route: str, what: str, key: str) -> list[str]:
        return [str(entry[key]) for entry in self._answer(route).get(what, ())]

    def _answer(self, route: str) -> Mapping[str, Any]:
        at, kept = self._kept.get(route, (0.0, {}))
        server = self._server()
        if server is None or (at and time.monotonic() - at < KEEP_S):
            return kept
        try:
            kept = server.call("GET", route, timeout=ASK_S)
        except AgentKernelError:
            return kept
        self._kept[route] = time.monotonic(), kept
        return kept
