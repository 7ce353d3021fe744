"""``%agent``: what is going on, which session, what is allowed."""

from __future__ import annotations

import difflib
import html
import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from agent_kernel.core.errors import NotFound
from agent_kernel.notebook.display.render import Bundle, json_bundle, line_bundle, moment, place, table_bundle
from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError, AgentInterrupted
from agent_kernel.notebook.magic import help
from agent_kernel.notebook.magic.context_preview import HELP as CONTEXT
from agent_kernel.notebook.magic.conversation_commands import HELP as CONVERSATION
from agent_kernel.notebook.magic.conversation_commands import Conversation, Say, Show, Words
from agent_kernel.notebook.magic.embedded_server import HELP as START
from agent_kernel.notebook.magic.embedded_server import OwnServer
from agent_kernel.notebook.magic.export_command import HELP as EXCHANGE
from agent_kernel.notebook.magic.export_command import Exchange
from agent_kernel.notebook.magic.freeze_command import HELP as FREEZE
from agent_kernel.notebook.magic.model_commands import HELP as MODELS
from agent_kernel.notebook.magic.model_commands import Models
from agent_kernel.notebook.magic.permission_commands import HELP as PERMISSIONS
from agent_kernel.notebook.magic.permission_commands import Permissions
from agent_kernel.notebook.magic.python_commands import HELP as PYTHON
from agent_kernel.notebook.magic.python_commands import Python
from agent_kernel.notebook.magic.search_command import ASKED, Search
from agent_kernel.notebook.magic.search_command import HELP as SEARCH
from agent_kernel.notebook.magic.tools_command import HELP as TOOLS
from agent_kernel.notebook.magic.tools_command import tell as tell_tools
from agent_kernel.notebook.magic.turn_commands import HELP as TURNS
from agent_kernel.notebook.server_client import NO_SERVER, Server, quoted
from agent_kernel.notebook.turn.cell_options import usage
from agent_kernel.notebook.turn.execution_target import VARIABLE as PYTHON_IN
from agent_kernel.notebook.turn.session_permissions import Consent

Table: TypeAlias = Mapping[str, Callable[[str], None]]

HELP = {
    **TURNS,
    "status": "session, notebook, model, and what is allowed",
    "sessions": "[WORDS]: the sessions you can use, or those with these words in title, tags or id",
    "search": SEARCH,
    "use": "ID: this notebook goes on with another session",
    "new": "[TITLE]: this notebook begins a new session",
    "start": START,
    "panel": "the chat panel, below this cell",
    "stop": "[server]: stop turns of this session that still run; server: what start began",
    **PERMISSIONS,
    **MODELS,
    "tools": TOOLS,
    **PYTHON,
    **CONVERSATION,
    **EXCHANGE,
    "freeze": FREEZE,
    "context": CONTEXT,
    "compact": "the model goes on from a summary of the older turns, which stay; compact undo",
    "usage": "what this session has cost: tokens and seconds by model and day, and its tools; --json",
    "skills": "the skills there are, for %%agent --skill NAME",
    "trust": "use the skills and MCP servers of this notebook's folder (.agents/skills, .mcp.json); trust remove",
    "help": "[COMMAND]: this list, or one command",
}
POLL_S = 0.5
COMPACT_TIMEOUT_S = 900.0
"""A small model on a CPU reads a long conversation slowly, and in several pieces."""


class Commands:
    """``python`` makes the commands about the python of turns, ``turns`` those that are turns themselves.

    ``declared`` is what a turn says it can run, ``running`` names turns that go on though their cell is over."""

    def __init__(
        self,
        shell: Any,
        server: Server | None,
        person: Person,
        consent: Consent,
        show: Show,
        *,
        python: Callable[[Callable[[], Server], Say], Python],
        turns: Callable[[Commands], Table],
        declared: Callable[[], Mapping[str, Any]],
        running: Callable[[], list[str]],
    ) -> None:
        self._shell = shell
        self._server = server
        self._own = OwnServer(shell, self.say, self._adopted)
        self._person = person
        self._consent = consent
        self._conversation = Conversation(lambda: self.server, person, self.say, show)
        self._exchange = Exchange(lambda: self.server, person, self.say)
        self._python = python(lambda: self.server, self.say)
        self._models = Models(shell, lambda: self.server, person, self.say, self._await_confirmation)
        self._declared = declared
        self._running = running
        self._turns = turns(self)
        self._rights = Permissions(lambda: self.server, consent, self.say, self.bound, self.begin)

    @property
    def last_turn(self) -> str:
        return self._conversation.last_turn

    @last_turn.setter
    def last_turn(self, turn: str) -> None:
        self._conversation.last_turn = turn

    @property
    def server(self) -> Server:
        """Raises ServerUnreachable in a kernel that no server of ours started, and that has started none."""
        if (server := self.known) is None:
            raise NO_SERVER
        return server

    @property
    def known(self) -> Server | None:
        return self._server or self._own.server

    def close(self) -> None:
        self._own.close()

    def run(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        command: Callable[[str], None] | None = None
        if name in {*HELP, ""}:
            owned: Callable[[str], None] | None = getattr(self, f"_{name or 'status'}", None)
            tables = (self._python.table, self._rights.table, self._models.table, self._turns)
            command = owned or next((table[name] for table in tables if name in table), None)
            command = command or (getattr(self._conversation, name) if name in CONVERSATION else None)
        if command is None:
            raise self._no_command(name)
        command(rest.strip())

    def _panel(self, rest: str) -> None:
        """Its libraries are loaded only for who opens one."""
        panel = importlib.import_module("agent_kernel.notebook.panel.panel").ChatPanel()
        self._shell.display_pub.publish(panel._repr_mimebundle_()[0])

    def _tools(self, rest: str) -> None:
        tell_tools(rest, self.server, self._declared, self.say)

    def _export(self, rest: str) -> None:
        self._exchange.export(rest)

    def _import(self, rest: str) -> None:
        self._exchange.bring_in(rest)

    def _clear(self, rest: str) -> None:
        """Of the conversation, or of its outputs alone."""
        if rest == "outputs":
            self._exchange.clear_outputs()
        else:
            self._conversation.clear(rest)

    def bound(self) -> Mapping[str, Any] | None:
        """The session of this notebook, if it has one yet."""
        return self.server.call("GET", "binding")["session"]  # type: ignore[no-any-return]

    def needed(self) -> Mapping[str, Any]:
        """The session of this notebook. Raises AgentError when it has none."""
        return self._conversation.bound()

    def go_on(self, node: str) -> None:
        """With another branch, or a new one. Raises AgentError."""
        self._conversation.go_on(node)

    def begin(self, title: str = "") -> str:
        """A new session, which this notebook uses from now on."""
        return str(self.server.call("POST", "sessions", {"title": title, "bind": True})["id"])

    def _status(self, rest: str) -> None:
        binding = self.server.call("GET", "binding")
        session, model, server = binding["session"], binding["model"], binding["server"]
        live = session is not None and self._consent.allows(session["id"])
        self.say(
            table_bundle(
                ("agent", ""),
                [
                    (
                        "session",
                        f"{_title(session)} ({session['turns']} turns)" if session else "begins with the first turn",
                    ),
                    ("session id", session["id"] if session else ""),
                    ("kept", "in memory only: private" if session and session["private"] else "on this machine"),
                    ("branch", session["branch"] if session else ""),
                    ("notebook", binding["notebook"] or "none: the session belongs to this kernel"),
                    ("model", f"{model['model']}, {place(model['local'], model['host'])}, {model['state']}"),
                    ("python runs", self._python.described),
                    ("your kernel", "allowed for this session" if live else "asks before code runs"),
                    ("server", f"agent-kernel {server['version']} at {server['url']}"),
                    *(("note", note) for note in binding["notes"]),
                ],
            )
        )

    def _sessions(self, rest: str) -> None:
        words = Words(rest)
        query = f"&name={quoted(words.text)}" if words.rest else ""
        found = self.server.call("GET", f"sessions?limit=50{query}")["sessions"]
        rows = [
            (
                entry["id"],
                _title(entry),
                ", ".join(entry["tags"]),
                entry["turns"],
                moment(entry["updated"]),
                "this notebook" if entry["bound"] else "",
            )
            for entry in found
        ]
        if "--json" in words.flags:
            self.say(json_bundle(found))
        elif rows:
            self.say(table_bundle(("id", "title", "tags", "turns", "last used", ""), rows))
        elif query:
            self.say(line_bundle(f"There is no session with {words.text!r} in its title, tags or id."))
        else:
            self.say(line_bundle("There is no session yet; the first %%agent cell begins one."))

    def _search(self, rest: str) -> None:
        search = Search.of(rest)
        if "--all" in search.flags:
            answer = self.server.call("POST", "search/access", {})
            if "pending" in answer:
                self._await_confirmation(answer, *ASKED)
        self.say(search.bundle(search.run(self.server)))

    def _use(self, rest: str) -> None:
        if not rest:
            raise AgentError("%agent use needs the id of a session; %agent sessions lists them.")
        answer = self.server.call("PUT", "binding", {"session": rest})
        if "pending" in answer:
            self._await_confirmation(answer, "That session belongs to another notebook.", "Let this notebook use it")
        self.say(line_bundle(f"This notebook goes on with the session {rest}."))

    def _skills(self, rest: str) -> None:
        found = self.server.call("GET", "skills")["data"]
        rows = [(skill["name"], skill["description"], skill["latest_version"], skill["id"]) for skill in found]
        none = "There is no skill yet; agent-kernel skills add DIR brings one."
        self.say(table_bundle(("name", "description", "version", "id"), rows) if rows else line_bundle(none))

    def _trust(self, rest: str) -> None:
        if rest not in ("", "remove"):
            raise AgentError("%agent trust has no arguments but remove.")
        if rest == "remove":
            removed = self.server.call("DELETE", "trust")
            was = "is not trusted any more" if removed["removed"] else "was not trusted by itself"
            self.say(line_bundle(f"{removed['folder']} {was}."))
            return
        answer = self.server.call("POST", "trust", {})
        if "pending" in answer:
            self._await_confirmation(answer, "Skills and MCP servers of this folder are not used yet.", "Trust it")
        self.say(line_bundle("This notebook's folder is trusted: its skills and MCP servers are used from now on."))

    def _await_confirmation(self, answer: Mapping[str, Any], why: str, what: str) -> None:
        """What a kernel may not do by itself: the person confirms it in the browser, where the kernel has no hand."""
        url = html.escape(answer["url"], quote=True)
        self.say(
            {
                "text/html": f"<div>{html.escape(why)} "
                f"<a href='{url}' target='_blank' rel='noopener'>{html.escape(what)}</a>; "
                "this cell waits for it, stop it to leave everything as it is.</div>",
                "text/plain": f"{why} {what}: open {answer['url']}",
            }
        )
        while True:
            status = self.server.call("GET", f"binds/{quoted(answer['pending'])}")["status"]
            if status == "confirmed":
                return
            if status != "waiting":
                raise AgentError(f"nothing was changed: the request was {status}.")
            time.sleep(POLL_S)

    def _new(self, rest: str) -> None:
        self.say(
            line_bundle(
                f"This notebook begins a new session, {self.begin(rest)}. %agent sessions has the earlier ones."
            )
        )

    def _start(self, rest: str) -> None:
        if self._server is not None:
            self.say(line_bundle(f"This kernel has a server already: {self._server.url}"))
        else:
            self._own.start()

    def _adopted(self, told: Mapping[str, str]) -> None:
        """What a server tells its kernels in their environment."""
        os.environ.update(told)
        self._python.by_default(told.get(PYTHON_IN, ""))

    def _stop(self, rest: str) -> None:
        if rest == "server":
            self._own.stop()
            return
        if rest:
            raise AgentError("%agent stop ends turns, %agent stop server the server that %agent start began.")
        stopped = sum(self._stopped(turn) for turn in self._open_turns())
        self.say(line_bundle(f"Stopped {stopped} turn{'s' * (stopped != 1)}." if stopped else "No turn is running."))

    def _open_turns(self) -> list[str]:
        """Those that wait come first, so that none begins because another was stopped."""
        session = self.bound()
        found = [*reversed(self._running()), *filter(None, [self.last_turn])]
        if session is not None:
            turns = self.server.call("GET", f"sessions/{quoted(session['id'])}/items?limit=0")["turns"]
            found += [turn["id"] for turn in turns if turn["state"] == "open"]
        return list(dict.fromkeys(found))

    def _stopped(self, turn: str) -> bool:
        try:
            if not self.server.call("GET", f"turns/{turn}")["running"]:
                return False
            self.server.call("POST", f"turns/{turn}/cancel", {"reason": "stopped by the person"})
        except NotFound:
            return False
        return True

    def _compact(self, rest: str) -> None:
        if rest not in ("", "undo"):
            raise AgentError(
                "%agent compact summarises the older turns for the model; %agent compact undo takes it back."
            )
        path = f"sessions/{quoted(self._conversation.bound()['id'])}/compact"
        if rest == "undo":
            undone = self.server.call("DELETE", path)["summary"]
            told = (
                "The newest summary is gone; the model reads those turns again." if undone else "There was no summary."
            )
            self.say(line_bundle(told))
            return
        made = self.server.call("POST", path, {}, timeout=COMPACT_TIMEOUT_S)["summary"]
        if made is None:
            self.say(line_bundle("There is nothing old enough to summarise."))
            return
        self.say(line_bundle(f"The model goes on from this summary; every turn is kept.\n\n{made['text']}"))

    def _usage(self, rest: str) -> None:
        usage = self.server.call("GET", f"sessions/{quoted(self._conversation.bound()['id'])}/usage")
        if "--json" in Words(rest).flags:
            self.say(json_bundle(usage))
            return
        rows = [("all", *_cost(usage["total"]))]
        for part in ("models", "days", "branches"):
            rows += [
                (f"{part.removesuffix('es').removesuffix('s')} {name}", *_cost(cost))
                for name, cost in usage[part].items()
            ]
        self.say(table_bundle(("", "turns", "tokens read", "of them reused", "tokens written", "seconds"), rows))
        tools = [
            (name, tool["count"], ", ".join(f"{n} {status}" for status, n in tool["outcomes"].items()), tool["seconds"])
            for name, tool in usage["tools"].items()
        ]
        if tools:
            self.say(table_bundle(("tool", "calls", "outcomes", "seconds"), tools))

    def _help(self, rest: str) -> None:
        """All of it, or one command."""
        if rest and rest not in HELP:
            raise self._no_command(rest)
        text = help.one(rest, HELP[rest]) if rest else f"{help.told(HELP)}\n\n{usage()}"
        self.say({"text/plain": text})

    def _no_command(self, name: str) -> AgentError:
        near = difflib.get_close_matches(name, HELP, 1)
        meant = f"Did you mean %agent {near[0]}?" if near else f"There are: {', '.join(HELP)}."
        return AgentError(f"%agent has no {name!r}. {meant}")

    def say(self, bundle: Bundle) -> None:
        if getattr(self._shell, "kernel", None) is None:  # titles and names are words of others
            bundle = {**bundle, "text/plain": printable(str(bundle["text/plain"]))}
        self._shell.display_pub.publish(bundle)


def interrupted() -> AgentInterrupted:
    return AgentInterrupted("stopped; nothing was changed.")


def _title(session: Mapping[str, Any]) -> str:
    return str(session["title"] or "untitled")


def _cost(cost: Mapping[str, Any]) -> tuple[Any, ...]:
    """As columns; a summary is a turn that nobody sees."""
    turns = f"{cost['turns']} + {cost['summaries']} summaries" if cost["summaries"] else cost["turns"]
    about = "about " if cost["estimated"] else ""
    read, written = f"{about}{cost['prompt_tokens']:,}", f"{about}{cost['completion_tokens']:,}"
    return turns, read, f"{cost['reused_tokens']:,}", written, round(cost["seconds"], 1)
