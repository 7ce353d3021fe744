"""``%agent`` on what may run: allow, deny, and what holds now and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, line_bundle, table_bundle
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic.conversation_commands import Say, Words
from agent_kernel.notebook.server_client import Server, quoted
from agent_kernel.notebook.turn.session_permissions import KINDS, Consent

HELP = {
    "allow": "live|shell|web|mcp|...: run this kind of call without asking, in this session; allow ask: ask again",
    "deny": "[live|shell|web|...]: this kind does not run in this session; alone: forget all that was allowed",
    "permissions": "what runs, what asks and what does not run, and why; --json",
}
WORDS = {"auto": "runs", "ask": "asks", "deny": "does not run"}


class Permissions:
    """``bound`` is the session of this notebook, ``begin`` makes one."""

    def __init__(
        self,
        server: Callable[[], Server],
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
            raise AgentError(f"%agent allow is one of {', '.join(KINDS)}, or ask: then each call is asked for again.")
        session = self._session()
        if rest == "ask":
            self._forget(session)
            return
        for kind in KINDS[rest]:
            self._consent.allow(session, kind)
        what = "Python of this session runs in this kernel" if rest == "live" else f"What is asked for as {rest} runs"
        self._say(line_bundle(f"{what} without asking, until it is restarted; %agent deny takes it back."))

    def deny(self, rest: str) -> None:
        if rest and rest not in KINDS:
            raise AgentError(f"%agent deny is one of {', '.join(KINDS)}; alone it forgets all that was allowed.")
        session = self._session()
        if not rest:
            self._forget(session)
            return
        for kind in KINDS[rest]:
            self._consent.refuse(session, kind)
        self._say(line_bundle(f"Nothing of {rest} runs in this session; %agent allow {rest} takes that back."))

    def permissions(self, rest: str) -> None:
        words, session = Words(rest), self._bound()
        where = f"sessions/{quoted(session['id'])}/permissions" if session else "agent/permissions"
        told = self._server().call("GET", where)
        mine = self._consent.rows(session["id"]) if session else []
        if "--json" in words.flags:
            self._say(json_bundle({**told, "kernel": [list(row) for row in mine]}))
            return
        rows = [(name, WORDS[rule["permission"]], _because(rule)) for name, rule in told["policy"].items()]
        rows += [
            (_named(grant["kind"], grant["tool"]), _said(grant["decision"] == "approve"), "you, for this session")
            for grant in told.get("grants", ())
        ]
        rows += [
            (_named(kind, tool), _said(decision == "allowed"), "you, until this kernel is restarted")
            for kind, tool, decision in mine
        ]
        self._say(table_bundle(("what", "", "because of"), rows))

    def _forget(self, session: str) -> None:
        """Here and on the server: the latter keeps what was said in the browser."""
        self._consent.withdraw(session)
        self._server().call("DELETE", f"sessions/{quoted(session)}/permissions")
        self._say(line_bundle("Each call is shown and asked for again."))

    def _session(self) -> str:
        session = self._bound()
        return str(session["id"]) if session else self._begin()


def _because(rule: Mapping[str, Any]) -> str:
    return f"{rule['because']}{', each time' if rule['firm'] and rule['permission'] == 'ask' else ''}"


def _named(kind: str, tool: str) -> str:
    return f"{kind}: {tool}" if tool else kind


def _said(allowed: bool) -> str:
    return WORDS["auto" if allowed else "deny"]
