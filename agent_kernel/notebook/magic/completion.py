"""Completes ``%agent`` and ``%%agent`` lines on Tab: commands, options, sessions, branches, variables and models. In
prompts, completes the names of variables and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.wire.agent_cells import is_agent_cell
from agent_kernel.notebook.magic.commands import HELP
from agent_kernel.notebook.server_client import ServerClient, route
from agent_kernel.notebook.turn.cell_options import BY_FLAG, TO_VARIABLE
from agent_kernel.notebook.turn.execution_target import CHOICES
from agent_kernel.notebook.turn.file_previews import complete_file
from agent_kernel.notebook.turn.result_type import PLAIN
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
    **dict.fromkeys(("fix", "explain", "improve"), tuple(BY_FLAG)),
    "ask": (*BY_FLAG, TO_VARIABLE),
}
"""Fixed completions after a command. For commands that are not listed here, completions come from the server."""


class MagicCompleter:
    """Completes lines of the two magics, and in the prompts of agent cells variables behind ``{`` and files behind
    ``@``. Returns nothing when the server does not answer within ASK_S seconds. Answers are cached for KEEP_S
    seconds."""

    def __init__(self, server: Callable[[], ServerClient | None], names: Callable[[], Iterable[str]]) -> None:
        self._server = server
        self._names = names
        self._cache: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._completers: dict[str, Callable[[], list[str]]] = {
            "use": self._sessions,
            "delete": self._sessions,
            "switch": self._branches,
            "drop": self._branches,
            "take": self._variables,
            "model": lambda: ["pull", "unload", "reset", *self._models(), *self._engines()],
        }

    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        before_token = context.text_until_cursor.removesuffix(context.token)
        if before_token.endswith(("{", "@")) and is_agent_cell(context.full_text):
            names = complete_file(context.token) if before_token.endswith("@") else self._names()
            completions = [SimpleCompletion(name) for name in names if name.startswith(context.token)]
            return {"completions": completions, "suppress": True}
        words = context.text_until_cursor.split()
        if not words or words[0] not in MAGICS or (len(words) == 1 and context.token):
            return {"completions": []}
        before = words[1:-1] if context.token else words[1:]
        candidates = self._option(before) if words[0] == "%%agent" else self._command(before)
        matches = [SimpleCompletion(text) for text in candidates if text.startswith(context.token)]
        return {"completions": matches, "suppress": bool(matches)}

    def _option(self, before: list[str]) -> list[str]:
        if TO_VARIABLE in before[-3:]:
            return [*PLAIN, "DataFrame"] if before[-1].endswith(":") else []
        option = BY_FLAG.get(before[-1]) if before else None
        if option is not None and option.constant is None:
            completers: dict[str, Callable[[], list[str]]] = {
                "session": self._sessions,
                "branch": self._branches,
                "model": lambda: self._models() + self._engines(),
                "page": lambda: ["above", "none"],
            }
            return completers[option.sets]() if option.sets in completers else list(option.choices)
        return [*BY_FLAG, TO_VARIABLE]

    def _command(self, before: list[str]) -> list[str]:
        if not before:
            return list(HELP)
        if before == ["model", "pull"]:
            return self._models()
        if len(before) > 1:
            return []
        completer = self._completers.get(before[0])
        return completer() if completer else list(WORDS.get(before[0], ()))

    def _sessions(self) -> list[str]:
        return self._names_from("sessions", "sessions", "id")

    def _branches(self) -> list[str]:
        return self._names_of_session("branches")

    def _variables(self) -> list[str]:
        return self._names_of_session("variables")

    def _names_of_session(self, kind: str) -> list[str]:
        session = self._answer("binding").get("session")
        return self._names_from(route("sessions", session["id"], kind), kind, "name") if session else []

    def _models(self) -> list[str]:
        return self._names_from("models", "models", "name")

    def _engines(self) -> list[str]:
        return self._names_from("models", "engines", "name")

    def _names_from(self, route: str, kind: str, key: str) -> list[str]:
        return [str(entry[key]) for entry in self._answer(route).get(kind, ())]

    def _answer(self, route: str) -> Mapping[str, Any]:
        at, answer = self._cache.get(route, (0.0, {}))
        server = self._server()
        if server is None or (at and time.monotonic() - at < KEEP_S):
            return answer
        try:
            answer = server.call("GET", route, timeout=ASK_S)
        except AgentKernelError:
            return answer
        self._cache[route] = time.monotonic(), answer
        return answer
