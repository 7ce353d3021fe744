"""Tab completion after ``%agent`` and ``%%agent``: commands, options, sessions, models."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agent_kernel.errors import AgentKernelError
from agent_kernel.notebook.client import Server
from agent_kernel.notebook.commands import HELP
from agent_kernel.notebook.options import BY_FLAG

ASK_S = 0.5
KEEP_S = 10.0


class Completion:
    """Both magics' completer. Silent when the server does not answer within ASK_S seconds."""

    def __init__(self, server: Callable[[], Server | None]) -> None:
        self._server = server
        self._kept: dict[str, tuple[float, list[str]]] = {}

    def __call__(self, shell: Any, event: Any) -> list[str]:
        words = event.text_until_cursor.split() if hasattr(event, "text_until_cursor") else event.line.split()
        before = words[1:-1] if event.symbol and words else words[1:]
        if words and words[0] == "%%agent":
            return self._option(before)
        return self._command(before)

    def _option(self, before: list[str]) -> list[str]:
        option = BY_FLAG.get(before[-1]) if before else None
        if option is not None and option.constant is None:
            return {"where": list(option.choices), "session": self._sessions(), "model": self._models()}.get(
                option.sets, []
            )
        return list(BY_FLAG)

    def _command(self, before: list[str]) -> list[str]:
        match before:
            case []:
                return list(HELP)
            case ["use"]:
                return self._sessions()
            case ["allow"]:
                return ["live", "ask"]
            case ["where"]:
                return ["live", "sandbox"]
            case ["model"]:
                return ["pull", "unload"]
            case ["model", "pull"]:
                return self._models()
        return []

    def _sessions(self) -> list[str]:
        return self._listed("sessions", "id")

    def _models(self) -> list[str]:
        return self._listed("models", "name")

    def _listed(self, what: str, key: str) -> list[str]:
        at, kept = self._kept.get(what, (0.0, []))
        server = self._server()
        if server is None or (at and time.monotonic() - at < KEEP_S):
            return kept
        try:
            kept = [str(entry[key]) for entry in server.call("GET", what, timeout=ASK_S)[what]]
        except AgentKernelError:
            return kept
        self._kept[what] = time.monotonic(), kept
        return kept
