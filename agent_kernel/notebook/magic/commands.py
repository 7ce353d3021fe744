"""The ``%agent`` line magic: looks up a command by its name and runs it.

Commands with state of their own live in the ``*_command(s).py`` modules; this module holds the short ones.
"""

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
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, ConversationCommands, Say, Show
from agent_kernel.notebook.magic.embedded_server import HELP as START
from agent_kernel.notebook.magic.embedded_server import EmbeddedServer
from agent_kernel.notebook.magic.export_command import HELP as EXCHANGE
from agent_kernel.notebook.magic.export_command import ExportCommands
from agent_kernel.notebook.magic.freeze_command import HELP as FREEZE
from agent_kernel.notebook.magic.model_commands import HELP as MODELS
from agent_kernel.notebook.magic.model_commands import ModelCommands
from agent_kernel.notebook.magic.permission_commands import HELP as PERMISSIONS
from agent_kernel.notebook.magic.permission_commands import PermissionCommands
from agent_kernel.notebook.magic.python_commands import HELP as PYTHON
from agent_kernel.notebook.magic.python_commands import PythonCommands
from agent_kernel.notebook.magic.search_command import ASKED, SearchQuery
from agent_kernel.notebook.magic.search_command import HELP as SEARCH
from agent_kernel.notebook.magic.tools_command import HELP as TOOLS
from agent_kernel.notebook.magic.tools_command import show_tools
from agent_kernel.notebook.magic.turn_commands import HELP as TURNS
from agent_kernel.notebook.magic.usage_command import HELP as USAGE
from agent_kernel.notebook.magic.usage_command import show_usage
from agent_kernel.notebook.server_client import NO_SERVER, ServerClient, quote_segment
from agent_kernel.notebook.turn.cell_options import usage
from agent_kernel.notebook.turn.execution_target import VARIABLE as PYTHON_IN
from agent_kernel.notebook.turn.session_permissions import Consent

Table: TypeAlias = Mapping[str, Callable[[str], None]]

HELP = {
    **TURNS,
    "status": "show the session, the notebook, the model and what is allowed",
    "sessions": "[WORDS]: list the sessions you can use, or those with WORDS in the title, tags or id",
    "search": SEARCH,
    "use": "ID: continue another session in this notebook",
    "new": "[TITLE]: start a new session in this notebook",
    "start": START,
    "panel": "show the chat panel below this cell",
    "stop": "[server]: stop the running turns of this session; stop server: stop the server that start started",
    **PERMISSIONS,
    **MODELS,
    "tools": TOOLS,
    **PYTHON,
    **CONVERSATION,
    **EXCHANGE,
    "freeze": FREEZE,
    "context": CONTEXT,
    "compact": "let the model read a summary of the older turns, which are kept; compact undo: remove the summary",
    "usage": USAGE,
    "skills": "list the available skills, for %%agent --skill NAME",
    "trust": "use AGENTS.md, .agents/skills and .mcp.json of this notebook's folder; trust remove",
    "help": "[COMMAND]: show this list, or the help of one command",
}
POLL_S = 0.5
COMPACT_TIMEOUT_S = 900.0
ON_HUB = " at the address of your JupyterHub"
UNCONFIRMED = {
    "denied": "nothing changed: you refused the request.",
    "expired": "nothing changed: the request was not confirmed in time. Run the cell again to ask once more.",
}
"""Compaction reads a long conversation in several pieces, which takes a small model on a CPU many minutes."""


class Commands:
    """Every ``%agent`` command.

    ``python`` builds the commands that choose where Python runs, ``turns`` builds the commands that run a turn.
    ``declared`` returns the abilities that a turn of this kernel declares, ``running`` the ids of background turns
    that have not ended."""

    def __init__(
        self,
        shell: Any,
        server: ServerClient | None,
        person: Person,
        consent: Consent,
        show: Show,
        *,
        python: Callable[[Callable[[], ServerClient], Say], PythonCommands],
        turns: Callable[[Commands], Table],
        declared: Callable[[], Mapping[str, Any]],
        running: Callable[[], list[str]],
    ) -> None:
        self._shell = shell
        self._server = server
        self._own = EmbeddedServer(shell, self.say, self._adopt_environment)
        self._person = person
        self._consent = consent
        self._conversation = ConversationCommands(lambda: self.server, person, self.say, show)
        self._exchange = ExportCommands(lambda: self.server, person, self.say)
        self._python = python(lambda: self.server, self.say)
        self._models = ModelCommands(shell, lambda: self.server, person, self.say, self._await_confirmation)
        self._declared = declared
        self._running = running
        self._turns = turns(self)
        self._rights = PermissionCommands(lambda: self.server, consent, self.say, self.find_session, self.begin)

    @property
    def last_turn(self) -> str:
        return self._conversation.last_turn

    @last_turn.setter
    def last_turn(self, turn: str) -> None:
        self._conversation.last_turn = turn

    @property
    def server(self) -> ServerClient:
        """The server of this kernel. Raises ServerUnreachable when no server started this kernel and ``%agent
        start`` has not started one."""
        if (server := self.known) is None:
            raise NO_SERVER
        return server

    @property
    def known(self) -> ServerClient | None:
        """The server of this kernel; None if there is none."""
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
        """Show the chat panel. The import is lazy because anywidget is needed only for the panel."""
        panel = importlib.import_module("agent_kernel.notebook.panel.panel").ChatPanel()
        self._shell.display_pub.publish(panel._repr_mimebundle_()[0])

    def _tools(self, rest: str) -> None:
        show_tools(rest, self.server, self._declared, self.say)

    def _export(self, rest: str) -> None:
        self._exchange.export(rest)

    def _import(self, rest: str) -> None:
        self._exchange.bring_in(rest)

    def _clear(self, rest: str) -> None:
        """Delete the turns of the conversation, or with ``outputs`` only the tool outputs of cleared cells."""
        if rest == "outputs":
            self._exchange.clear_outputs()
        else:
            self._conversation.clear(rest)

    def find_session(self) -> Mapping[str, Any] | None:
        """Return the session of this notebook, or None if there is none yet."""
        return self.server.call("GET", "binding")["session"]  # type: ignore[no-any-return]

    def require_session(self) -> Mapping[str, Any]:
        """Return the session of this notebook. Raises AgentError when there is none."""
        return self._conversation.require_session()

    def go_on(self, node: str) -> None:
        """Switch to the branch ``node``, or to a new branch after turn number ``node``. Raises AgentError."""
        self._conversation.go_on(node)

    def begin(self, title: str = "") -> str:
        """Create a session, bind it to this notebook and return its id."""
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
                        f"{_title(session)} ({session['turns']} turns)" if session else "starts with the first turn",
                    ),
                    ("session id", session["id"] if session else ""),
                    ("stored", "in memory only: private" if session and session["private"] else "on this machine"),
                    ("branch", session["branch"] if session else ""),
                    ("notebook", binding["notebook"] or "none; the session belongs to this kernel"),
                    ("model", f"{model['model']}, {place(model['local'], model['host'])}, {model['state']}"),
                    ("python runs", self._python.described),
                    ("your kernel", "allowed for this session" if live else "asks before code runs"),
                    ("server", f"agent-kernel {server['version']} at {server['url']}"),
                    *(("note", note) for note in binding["notes"]),
                ],
            )
        )

    def _sessions(self, rest: str) -> None:
        words = CommandArguments(rest)
        query = f"&name={quote_segment(words.text)}" if words.rest else ""
        sessions = self.server.call("GET", f"sessions?limit=50{query}")["sessions"]
        rows = [
            (
                entry["id"],
                _title(entry),
                ", ".join(entry["tags"]),
                entry["turns"],
                moment(entry["updated"]),
                "this notebook" if entry["bound"] else "",
            )
            for entry in sessions
        ]
        if "--json" in words.flags:
            self.say(json_bundle(sessions))
        elif rows:
            self.say(table_bundle(("id", "title", "tags", "turns", "last used", ""), rows))
        elif query:
            self.say(line_bundle(f"There is no session with {words.text!r} in its title, tags or id."))
        else:
            self.say(line_bundle("There is no session yet; the first %%agent cell starts one."))

    def _search(self, rest: str) -> None:
        search = SearchQuery.of(rest)
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
        self.say(line_bundle(f"This notebook continues the session {rest}."))

    def _skills(self, rest: str) -> None:
        skills = self.server.call("GET", "skills")["data"]
        rows = [(skill["name"], skill["description"], skill["latest_version"], skill["id"]) for skill in skills]
        none = "There are no skills yet. Install one with: agent-kernel skills add DIR"
        self.say(table_bundle(("name", "description", "version", "id"), rows) if rows else line_bundle(none))

    def _trust(self, rest: str) -> None:
        if rest not in ("", "remove"):
            raise AgentError("%agent trust takes no argument except remove.")
        if rest == "remove":
            removed = self.server.call("DELETE", "trust")
            was = "is no longer trusted" if removed["removed"] else "was not trusted on its own"
            self.say(line_bundle(f"{removed['folder']} {was}."))
            return
        answer = self.server.call("POST", "trust", {})
        if "pending" in answer:
            self._await_confirmation(answer, "Skills and MCP servers of this folder are not used yet.", "Trust it")
        self.say(
            line_bundle(
                "This notebook's folder is trusted: its instructions, skills and MCP servers are used from now on."
            )
        )

    def _await_confirmation(self, answer: Mapping[str, Any], why: str, what: str) -> None:
        """Wait until the user confirms the request in the browser. A kernel cannot confirm it itself, because code
        of the model may run in the kernel."""
        url = html.escape(answer["url"], quote=True)
        self.say(
            {
                "text/html": f"<div>{html.escape(why)} "
                f"<a href='{url}' target='_blank' rel='noopener'>{html.escape(what)}</a>; "
                "this cell waits until you confirm; stop the cell to change nothing.</div>",
                "text/plain": f"{why} {what}: open {answer['url']}{ON_HUB if answer['url'].startswith('/') else ''}",
            }
        )
        while True:
            status = self.server.call("GET", f"binds/{quote_segment(answer['pending'])}")["status"]
            if status == "confirmed":
                return
            if status != "waiting":
                raise AgentError(UNCONFIRMED.get(status, f"nothing changed: the request is {status}."))
            time.sleep(POLL_S)

    def _new(self, rest: str) -> None:
        self.say(
            line_bundle(
                f"This notebook uses a new session, {self.begin(rest)}. %agent sessions lists the earlier ones."
            )
        )

    def _start(self, rest: str) -> None:
        if self._server is not None:
            self.say(line_bundle(f"This kernel already has a server: {self._server.url}"))
        else:
            self._own.start()

    def _adopt_environment(self, environment: Mapping[str, str]) -> None:
        """Take over the environment variables that an embedded server sends to its kernel."""
        os.environ.update(environment)
        self._python.by_default(environment.get(PYTHON_IN, ""))

    def _stop(self, rest: str) -> None:
        if rest == "server":
            self._own.stop()
            return
        if rest:
            raise AgentError("%agent stop stops turns; %agent stop server stops the server that %agent start started.")
        stopped = sum(self._stop_turn(turn) for turn in self._open_turns())
        self.say(line_bundle(f"Stopped {stopped} turn{'s' * (stopped != 1)}." if stopped else "No turn is running."))

    def _open_turns(self) -> list[str]:
        """Return the ids of unfinished turns, queued ones first: otherwise stopping one would start the next."""
        session = self.find_session()
        turn_ids = [*reversed(self._running()), *filter(None, [self.last_turn])]
        if session is not None:
            session_turns = self.server.call("GET", f"sessions/{quote_segment(session['id'])}/items?limit=0")["turns"]
            turn_ids += [turn["id"] for turn in session_turns if turn["state"] == "open"]
        return list(dict.fromkeys(turn_ids))

    def _stop_turn(self, turn: str) -> bool:
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
                "%agent compact summarises the older turns for the model; %agent compact undo removes the summary."
            )
        path = f"sessions/{quote_segment(self._conversation.require_session()['id'])}/compact"
        if rest == "undo":
            undone = self.server.call("DELETE", path)["summary"]
            message = (
                "The newest summary is removed; the model reads its turns again." if undone else "There was no summary."
            )
            self.say(line_bundle(message))
            return
        made = self.server.call("POST", path, {}, timeout=COMPACT_TIMEOUT_S)["summary"]
        if made is None:
            self.say(line_bundle("There is nothing old enough to summarise."))
            return
        self.say(line_bundle(f"The model continues from this summary; every turn is kept.\n\n{made['text']}"))

    def _usage(self, rest: str) -> None:
        show_usage(rest, self.server, self._conversation.require_session(), self.say)

    def _help(self, rest: str) -> None:
        """Show the help of all commands, or of the command ``rest``."""
        if rest and rest not in HELP:
            raise self._no_command(rest)
        text = help.format_command(rest, HELP[rest]) if rest else f"{help.format_help(HELP)}\n\n{usage()}"
        self.say({"text/plain": text})

    def _no_command(self, name: str) -> AgentError:
        near = difflib.get_close_matches(name, HELP, 1)
        meant = f"Did you mean %agent {near[0]}?" if near else f"Commands: {', '.join(HELP)}."
        return AgentError(f"%agent has no command {name!r}. {meant}")

    def say(self, bundle: Bundle) -> None:
        """Publish ``bundle``. In a terminal, control characters are removed, because titles and names may come
        from other people or the model."""
        if getattr(self._shell, "kernel", None) is None:
            bundle = {**bundle, "text/plain": printable(str(bundle["text/plain"]))}
        self._shell.display_pub.publish(bundle)


def interruption_error() -> AgentInterrupted:
    return AgentInterrupted("stopped; nothing changed.")


def _title(session: Mapping[str, Any]) -> str:
    return str(session["title"] or "untitled")
