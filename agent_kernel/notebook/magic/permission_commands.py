"""Implements ``%agent allow``, ``deny`` and ``permissions``. The first two decide which calls run in this session, and
the last one shows which calls run, ask or are denied, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.display.render import json_bundle, table_bundle
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandGroup, session_path
from agent_kernel.notebook.server_client import route
from agent_kernel.notebook.turn.session_permissions import KINDS

HELP = {
    "allow": "live|shell|web|mcp|...: run this kind of call without asking in this session; allow ask: ask again",
    "deny": "[live|shell|web|...]: refuse this kind in this session; without a kind: remove all permissions you gave",
    "permissions": "show which calls run, ask or are denied, and why; --json",
}
WORDS = {"auto": "runs", "ask": "asks", "deny": "does not run"}


class PermissionCommands(CommandGroup):
    """Implements the commands that HELP lists, with one method for each."""

    def allow(self, line: str) -> None:
        if line != "ask" and line not in KINDS:
            kinds = ", ".join(KINDS)
            raise AgentError(f"%agent allow takes one of {kinds}, or ask, after which each call needs your approval.")
        session = self._session()
        if line == "ask":
            self._forget(session)
            return
        for kind in KINDS[line]:
            self._context.consent.allow(session, kind)
        what = "Python of this session runs in this kernel" if line == "live" else f"Each {line} call runs"
        self._print_line(f"{what} without asking until the kernel restarts; %agent deny revokes it.")

    def deny(self, line: str) -> None:
        if line and line not in KINDS:
            raise AgentError(f"%agent deny takes one of {', '.join(KINDS)}; alone it removes all permissions you gave.")
        session = self._session()
        if not line:
            self._forget(session)
            return
        for kind in KINDS[line]:
            self._context.consent.refuse(session, kind)
        self._print_line(f"No {line} call runs in this session; %agent allow {line} revokes that.")

    def permissions(self, line: str) -> None:
        arguments, session = CommandArguments(line), self._context.find_session()
        path = session_path(session, "permissions") if session else "agent/permissions"
        answer = self._context.server.call("GET", path)
        own_decisions = self._context.consent.rows(session["id"]) if session else []
        if "--json" in arguments.flags:
            self._context.publish(json_bundle({**answer, "kernel": [list(row) for row in own_decisions]}))
            return
        rows = [(name, WORDS[rule["permission"]], _because(rule)) for name, rule in answer["policy"].items()]
        for grant in answer.get("grants", ()):
            rows.append(_decision_row(grant["kind"], grant["tool"], grant["decision"] == "approve", "for this session"))
        for kind, tool, decision in own_decisions:
            rows.append(_decision_row(kind, tool, decision == "allowed", "until this kernel restarts"))
        self._context.publish(table_bundle(("what", "", "because of"), rows))

    def _forget(self, session: str) -> None:
        """Remove all permissions of the session: those given in this kernel, and those given in the browser, which the
        server stores."""
        self._context.consent.withdraw(session)
        self._context.server.call("DELETE", route("sessions", session, "permissions"))
        self._print_line("The permissions that you gave are removed. Calls that need your approval ask again.")

    def _session(self) -> str:
        """Return the id of this notebook's session. If the notebook has none yet, create one."""
        session = self._context.find_session()
        return str(session["id"]) if session else self._context.begin_session()


def _because(rule: Mapping[str, Any]) -> str:
    return f"{rule['because']}{', each time' if rule['firm'] and rule['permission'] == 'ask' else ''}"


def _decision_row(kind: str, tool: str, allowed: bool, until: str) -> tuple[str, str, str]:
    """Return the table row of a decision of the user about a kind of calls, or about one tool of that kind."""
    return f"{kind}: {tool}" if tool else kind, WORDS["auto" if allowed else "deny"], f"you, {until}"
