"""The ``%agent`` line magic: looks up a command by its name and runs it.

Groups of commands live in the ``*_command(s).py`` modules; this module has the commands on sessions, folders, the
panel and the server.
"""

from __future__ import annotations

import difflib
import importlib
import keyword
import os
import sys
from collections.abc import Callable

from agent_kernel.core.errors import NotFound
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.notebook.display.render import line_bundle, moment, place, table_bundle, turn_count
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic import (
    context_preview,
    conversation_commands,
    embedded_server,
    export_command,
    freeze_command,
    help_text,
    model_commands,
    permission_commands,
    python_commands,
    search_command,
    tools_command,
    turn_commands,
    usage_command,
)
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandContext, Json, session_path
from agent_kernel.notebook.server_client import route
from agent_kernel.notebook.turn.cell_options import usage
from agent_kernel.notebook.turn.execution_target import VARIABLE as PYTHON_IN
from agent_kernel.notebook.turn.request_builder import RequestBuilder

HELP = {
    **turn_commands.HELP,
    "status": "show the session, the notebook, the model and what is allowed",
    "sessions": "[WORDS]: list the sessions you can use, or those with WORDS in the title, tags or id",
    "search": search_command.HELP,
    "use": "ID: continue another session in this notebook",
    "new": "[TITLE]: start a new session in this notebook",
    "start": embedded_server.HELP,
    "panel": "show the chat panel below this cell",
    "stop": "[server]: stop the running turns of this session; stop server: stop the server of %agent start",
    **permission_commands.HELP,
    **model_commands.HELP,
    "tools": tools_command.HELP,
    **python_commands.HELP,
    **conversation_commands.HELP,
    **export_command.HELP,
    "freeze": freeze_command.HELP,
    "context": context_preview.HELP,
    "compact": "let the model read a summary of the older turns, which are kept; compact undo: remove the summary",
    "usage": usage_command.HELP,
    "skills": "list the available skills, for %%agent --skill NAME",
    "trust": "use AGENTS.md, .agents/skills and .mcp.json of this notebook's folder; trust remove",
    "help": "[COMMAND]: show this list, or the help of one command",
}
QUESTION_WORDS = 3
"""Minimum number of words after an unknown command that make the line count as a question to the model."""
ASK_HINT = "To ask a question, write %%agent on a line of its own and the question below it, or %agent ask QUESTION."
HELP_HINT = "%agent help lists the commands."
COMPACT_TIMEOUT_S = 900.0
"""Time limit of ``%agent compact`` in seconds. The model summarises a long conversation in several parts, which takes a
small model on a CPU many minutes."""


class Commands:
    """All ``%agent`` commands. The method that runs a command has the command's name, and belongs to this class or to
    one of ``groups``. If the name is a keyword of Python, an underscore follows it in the method's name.

    ``running`` returns the ids of background turns that have not ended."""

    def __init__(
        self,
        context: CommandContext,
        requests: RequestBuilder,
        *groups: object,
        running: Callable[[], list[str]],
    ) -> None:
        self._context = context
        self._requests = requests
        self._running = running
        self.conversation = conversation_commands.ConversationCommands(context)
        self._export = export_command.ExportCommands(context)
        others = (
            freeze_command.FreezeCommand(context),
            context_preview.ContextPreview(context, requests.build_tool_fields),
            model_commands.ModelCommands(context),
            permission_commands.PermissionCommands(context),
        )
        self._groups = (self, *groups, *others, self._export, self.conversation)

    def run(self, line: str) -> None:
        """Run a line of the form ``COMMAND ARGUMENTS``; an empty line shows the status. Raises AgentError for an
        unknown command, and whatever the command raises."""
        name, _, arguments = line.strip().partition(" ")
        name = name or "status"
        if name not in HELP:
            raise _no_command(name, arguments.strip())
        method = f"{name}_" if keyword.iskeyword(name) else name
        group = next(group for group in self._groups if hasattr(group, method))
        getattr(group, method)(arguments.strip())

    def help(self, line: str) -> None:
        """Show the help of all commands, or of the command ``line``."""
        if line and line not in HELP:
            raise _no_command(line)
        text = help_text.format_command(line, HELP[line]) if line else f"{help_text.format_help(HELP)}\n\n{usage()}"
        self._context.publish({"text/plain": text})

    def panel(self, line: str) -> None:
        """Show the chat panel. The import is lazy because anywidget is needed only for the panel. Raises AgentError if
        this environment does not have it."""
        try:
            panel = importlib.import_module("agent_kernel.notebook.panel.panel").ChatPanel()
        except ModuleNotFoundError as error:
            raise AgentError(
                f"the panel in a cell needs {error.name} in this environment: "
                f"{sys.executable} -m pip install 'agent-kernel-magic[panel]'"
            ) from None
        self._context.shell.display_pub.publish(panel._repr_mimebundle_()[0])

    def tools(self, line: str) -> None:
        tools_command.show_tools(line, self._context, self._requests.build_tool_fields())

    def usage(self, line: str) -> None:
        usage_command.show_usage(line, self._context)

    def search(self, line: str) -> None:
        search_command.search(line, self._context)

    def clear(self, line: str) -> None:
        """Delete the turns of the conversation, or with ``outputs`` only the tool outputs of cleared cells."""
        if line == "outputs":
            self._export.clear_outputs()
        else:
            self.conversation.clear(line)

    # ------------------------------------------------------------------------------------------- sessions

    def status(self, line: str) -> None:
        binding = self._context.server.call("GET", "binding")
        session, model, server = binding["session"], binding["model"], binding["server"]
        live = session is not None and self._context.consent.allows(session["id"])
        title = f"{_title(session)} ({turn_count(session['turns'])})" if session else "starts with the first turn"
        rows = [
            ("session", title),
            *([("session id", session["id"])] if session else []),
            ("stored", "in memory only: private" if session and session["private"] else "on this machine"),
            *([("branch", session["branch"])] if session else []),
            ("notebook", binding["notebook"] or "none; the session belongs to this kernel"),
            ("model", f"{model['model']}, {place(model['local'], model['host'])}, {model['state']}"),
            ("python runs", self._requests.target.described),
            ("your kernel", "allowed for this session" if live else "asks before code runs"),
            ("server", f"agent-kernel {server['version']} at {server['url']}"),
            *(("note", note) for note in binding["notes"]),
        ]
        self._context.publish(table_bundle(("agent", ""), rows))

    def sessions(self, line: str) -> None:
        arguments = CommandArguments(line)
        query = f"&name={route(arguments.text)}" if arguments.words else ""
        sessions = self._context.server.call("GET", f"sessions?limit=50{query}")["sessions"]
        none = f"There is no session with {arguments.text!r} in its title, tags or id."
        none = none if query else "There is no session yet; the first %%agent cell starts one."
        rows = [_session_row(session) for session in sessions]
        self._context.list(arguments, sessions, ("id", "title", "tags", "turns", "last used", ""), rows, none)

    def use(self, line: str) -> None:
        if not line:
            raise AgentError("%agent use needs the id of a session; %agent sessions lists them.")
        answer = self._context.server.call("PUT", "binding", {"session": line})
        why = "That session belongs to another notebook."
        self._context.await_confirmation(answer, why, "Let this notebook use it")
        self._context.print_line(f"This notebook continues the session {line}.")

    def new(self, line: str) -> None:
        session = self._context.begin_session(line)
        self._context.print_line(
            f"This notebook uses a new session, {session}. %agent sessions lists the earlier ones."
        )

    def compact(self, line: str) -> None:
        if line not in ("", "undo"):
            raise AgentError(
                "%agent compact summarises the older turns for the model; %agent compact undo removes the summary."
            )
        path = session_path(self._context.require_session(), "compact")
        if line == "undo":
            removed = self._context.server.call("DELETE", path)["summary"]
            text = "The newest summary is removed; the model reads the turns that it summarised again."
            self._context.print_line(text if removed else "Nothing was removed: this conversation has no summary.")
            return
        summary = self._context.server.call("POST", path, {}, timeout=COMPACT_TIMEOUT_S)["summary"]
        text = f"The model continues from this summary; every turn is kept.\n\n{summary['text']}" if summary else ""
        self._context.print_line(text or "Nothing was summarised: no turn of this conversation is old enough.")

    # ------------------------------------------------------------------------------------------- skills and trust

    def skills(self, line: str) -> None:
        skills = self._context.server.call("GET", "skills")["data"]
        rows = [(skill["name"], skill["description"], skill["latest_version"], skill["id"]) for skill in skills]
        none = "There are no skills yet. Install one with: agent-kernel skills add DIR"
        bundle = table_bundle(("name", "description", "version", "id"), rows) if rows else line_bundle(none)
        self._context.publish(bundle)

    def trust(self, line: str) -> None:
        if line not in ("", "remove"):
            raise AgentError("%agent trust takes no argument except remove.")
        if line == "remove":
            removed = self._context.server.call("DELETE", "trust")
            was = "is no longer trusted" if removed["removed"] else "was not in the list of trusted folders"
            self._context.print_line(f"{removed['folder']} {was}.")
            return
        answer = self._context.server.call("POST", "trust", {})
        why = "Skills and MCP servers of this folder are not used yet."
        self._context.await_confirmation(answer, why, "Trust it")
        self._context.print_line(
            "This notebook's folder is trusted: its instructions, skills and MCP servers are used from now on."
        )

    # ------------------------------------------------------------------------------------------- server

    def start(self, line: str) -> None:
        """Start a server for this kernel, unless it has one."""
        if server := self._context.started_by:
            self._context.print_line(f"This kernel already has a server: {server.url}")
        elif server := self._context.embedded.server:
            self._context.print_line(f"The server of this kernel is already running at {server.url}.")
        else:
            environment = self._context.embedded.start(self._context.print_line)
            os.environ.update(environment)
            self._requests.target.set_default(environment.get(PYTHON_IN, ""))

    def stop(self, line: str) -> None:
        if line == "server":
            had_server = self._context.embedded.server is not None
            self._context.embedded.close()
            text = "The server of this kernel is stopped; its conversations stay stored."
            self._context.print_line(
                text if had_server else "No server was stopped: %agent start has not started one for this kernel."
            )
            return
        if line:
            raise AgentError("%agent stop stops turns; %agent stop server stops the server that %agent start started.")
        stopped = sum(self._stop_turn(turn) for turn in self._open_turns())
        text = f"Stopped {stopped} turn{'s' * (stopped != 1)}." if stopped else "No turn is running."
        self._context.print_line(text)

    def _open_turns(self) -> list[str]:
        """Return the ids of unfinished turns, queued ones first. They are stopped in this order, so that stopping a
        running turn does not start a queued one."""
        session = self._context.find_session()
        turn_ids = [*reversed(self._running()), *filter(None, [self._context.last_turn])]
        if session is not None:
            turn_ids += [turn["id"] for turn in self._context.list_turns(session) if turn["state"] == "open"]
        return list(dict.fromkeys(turn_ids))

    def _stop_turn(self, turn: str) -> bool:
        try:
            if not self._context.server.call("GET", f"turns/{turn}")["running"]:
                return False
            self._context.server.call("POST", f"turns/{turn}/cancel", {"reason": STOPPED_BY_USER})
        except NotFound:
            return False
        return True


def _no_command(name: str, line: str = "") -> AgentError:
    """Return the error for an unknown command. If several words follow it, the error says how to ask a question,
    because the user has probably left out ``ask``. It then suggests no similar command, because "what", for example, is
    similar to the name of a command."""
    near = difflib.get_close_matches(name, HELP, 1)
    suggestion = f"Did you mean %agent {near[0]}?" if near else HELP_HINT
    if len(line.split()) >= QUESTION_WORDS:
        suggestion = f"{ASK_HINT} {HELP_HINT}"
    return AgentError(f"%agent has no command {name!r}. {suggestion}")


def _title(session: Json) -> str:
    return str(session["title"] or "untitled")


def _session_row(session: Json) -> tuple[object, ...]:
    bound = "this notebook" if session["bound"] else ""
    tags = ", ".join(session["tags"])
    return session["id"], _title(session), tags, session["turns"], moment(session["updated"]), bound
