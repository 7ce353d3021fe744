"""``%agent allow``, ``deny`` and ``permissions``: which calls run, ask or are denied in this session, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, line_bundle, table_bundle
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, Say
from agent_kernel.notebook.server_client import ServerClient, quote_segment
from agent_kernel.notebook.turn.session_permissions import KINDS, Consent

HELP = {
    "allow": "live|shell|web|mcp|...: run this kind of call without asking in this session; allow ask: ask again",
    "deny": "[live|shell|web|...]: refuse this kind in this session; without a kind: remove all permissions you gave",
    "permissions": "show which calls run, ask or are denied, and why; --json",
}
WORDS = {"auto": "runs", "ask": "asks", "deny": "does not run"}


class PermissionCommands:
    """One method for each command. ``bound`` returns the session of this notebook or None; ``begin`` creates a session
    and returns its id."""

    def __init__(
        self,
        server: Callable[[], ServerClient],
        consent: Consent,
        say: Say,
        bound: Callable[[], Mapping[str, Any] | None],
        begin: Callable[[], str],
    ) -> None:
        self._server = server
        self._consent = consent
        self._say = say
        self._bound = bound
        self._begin = begin
        self.table: dict[str, Callable[[str], None]] = {
            "allow": self.allow,
            "deny": self.deny,
            "permissions": self.permissions,
        }

    def allow(self, rest: str) -> None:
        if rest != "ask" and rest not in KINDS:
            raise AgentError(f"%agent allow takes one of {', '.join(KINDS)}, or ask, which asks for each call again.")
        session = self._session()
        if rest == "ask":
            self._forget(session)
            return
        for kind in KINDS[rest]:
            self._consent.allow(session, kind)
        what = "Python of this session runs in this kernel" if rest == "live" else f"Each {rest} call runs"
        self._say(line_bundle(f"{what} without asking until the kernel restarts; %agent deny revokes it."))

    def deny(self, rest: str) -> None:
        if rest and rest not in KINDS:
            raise AgentError(f"%agent deny takes one of {', '.join(KINDS)}; alone it removes all permissions you gave.")
        session = self._session()
        if not rest:
            self._forget(session)
            return
        for kind in KINDS[rest]:
            self._consent.refuse(session, kind)
        self._say(line_bundle(f"No {rest} call runs in this session; %agent allow {rest} revokes that."))

    def permissions(self, rest: str) -> None:
        words, session = CommandArguments(rest), self._bound()
        where = f"sessions/{quote_segment(session['id'])}/permissions" if session else "agent/permissions"
        answer = self._server().call("GET", where)
        mine = self._consent.rows(session["id"]) if session else []
        if "--json" in words.flags:
            self._say(json_bundle({**answer, "kernel": [list(row) for row in mine]}))
            return
        rows = [(name, WORDS[rule["permission"]], _because(rule)) for name, rule in answer["policy"].items()]
        rows += [
            (
                _grant_name(grant["kind"], grant["tool"]),
                _decision(grant["decision"] == "approve"),
                "you, for this session",
            )
            for grant in answer.get("grants", ())
        ]
        rows += [
            (_grant_name(kind, tool), _decision(decision == "allowed"), "you, until this kernel restarts")
            for kind, tool, decision in mine
        ]
        self._say(table_bundle(("what", "", "because of"), rows))

    def _forget(self, session: str) -> None:
        """Remove the permissions given in this kernel and those the server stores from the browser."""
        self._consent.withdraw(session)
        self._server().call("DELETE", f"sessions/{quote_segment(session)}/permissions")
        self._say(line_bundle("Each call is shown, and you are asked again."))

    def _session(self) -> str:
        session = self._bound()
        return str(session["id"]) if session else self._begin()


def _because(rule: Mapping[str, Any]) -> str:
    return f"{rule['because']}{', each time' if rule['firm'] and rule['permission'] == 'ask' else ''}"


def _grant_name(kind: str, tool: str) -> str:
    return f"{kind}: {tool}" if tool else kind


def _decision(allowed: bool) -> str:
    return WORDS["auto" if allowed else "deny"]
