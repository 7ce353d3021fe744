"""Implements the ``%agent`` commands on the conversation: branches, versions, title, tags, notes, undo, private
mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import Conflict
from agent_kernel.notebook.display.render import moment, turn_count
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandGroup, Json, session_path
from agent_kernel.notebook.server_client import route

HELP = {
    "branch": "[N]: start a new branch after turn N of this one, or after its last turn",
    "branches": "list the branches of this conversation",
    "switch": "NAME: continue another branch",
    "drop": "NAME: delete a branch and the turns that no other branch has",
    "versions": "list the answers to the last cell; N: show one of them",
    "fork": "[N] [--into ID] [--use]: copy the first N turns into a new session; --use: continue it in this notebook",
    "undo": "remove the last turn",
    "clear": "delete every turn of this session; clear outputs: only tool outputs of cells you have cleared",
    "delete": "ID: delete a session",
    "title": "TEXT: set the title of this session",
    "tags": "A, B: set the tags of this session; --none removes them",
    "note": "KEY=VALUE: store a note with this session; KEY= removes it",
    "private": "[off]: keep this conversation in memory only from now on; off deletes it and restores the earlier one",
    "unbind": "detach this notebook from its session; the session is kept",
}
TRIES = 3


class ConversationCommands(CommandGroup):
    """Implements the commands that HELP lists, with one method for each."""

    # ------------------------------------------------------------------------------------------- branches

    def branches(self, line: str) -> None:
        arguments = CommandArguments(line)
        branches = self._list_branches(self._context.require_session())
        rows = [
            (branch["name"], branch["turns"], branch["parent"], moment(branch["created"]), _current(branch))
            for branch in branches
        ]
        self._context.list(arguments, branches, ("branch", "turns", "from", "made", ""), rows)

    def switch(self, line: str) -> None:
        name = _require_name(
            line, "the name of the branch is missing: %agent switch NAME. %agent branches lists the names."
        )
        path = session_path(self._context.require_session(), "branch")
        branch = self._context.server.call("PUT", path, {"name": name})
        self._print_line(f"This notebook continues the branch {name}, which has {turn_count(branch['turns'])}.")

    def branch(self, line: str) -> None:
        if line and not line.isdecimal():
            raise AgentError("Usage: %agent branch [N]. The new branch begins with the first N turns of this one.")
        branch = self._create_branch(self._context.require_session(), line)
        turns = turn_count(branch["turns"])
        beginning = f"{turns} of {branch['parent']}" if branch["parent"] else turns
        self._print_line(f"This notebook continues the new branch {branch['name']}, which starts with {beginning}.")

    def go_on(self, node: str) -> None:
        """Continue the branch named ``node``. If ``node`` is the number of a turn, create a branch after that turn and
        continue it."""
        session = self._context.require_session()
        branch_names = {branch["name"] for branch in self._list_branches(session)}
        if node not in branch_names and not node.isdecimal():
            raise AgentError(
                f"--branch must be the name of a branch ({', '.join(sorted(branch_names))}) or the number of a turn."
            )
        if node not in branch_names:
            self._create_branch(session, node)
        elif node != session["branch"]:
            self._context.server.call("PUT", session_path(session, "branch"), {"name": node})

    def _list_branches(self, session: Json) -> list[Json]:
        return list(self._context.server.call("GET", session_path(session, "branches"))["branches"])

    def _create_branch(self, session: Json, number: str) -> Json:
        """Create a branch that begins with the first ``number`` turns of the current branch; without a number, with all
        of its turns."""
        body: dict[str, Any] = {}
        if number:
            turns = self._context.list_turns(session)
            if int(number) > len(turns):
                raise AgentError(f"there is no turn {number}; this branch has {turn_count(len(turns))}.")
            body = {"before": turns[int(number)]["id"]} if int(number) < len(turns) else {}
        self._context.last_turn = ""
        return self._context.server.call("POST", session_path(session, "branches"), body)

    def drop(self, line: str) -> None:
        arguments = CommandArguments(line)
        name = _require_name(
            arguments.text, "the name of the branch is missing: %agent drop NAME. %agent branches lists the names."
        )
        session = self._context.require_session()
        self._context.confirm(arguments, f"Delete the branch {name} permanently?")
        self._context.server.call("DELETE", session_path(session, "branches", name), revision=session["revision"])
        self._print_line(f"The branch {name} is deleted.")

    def versions(self, line: str) -> None:
        arguments = CommandArguments(line)
        turn = self._context.last_turn or self._context.find_turn()
        answer = self._context.server.call("GET", route("turns", turn, "versions"))
        versions = answer["versions"]
        if not arguments.words:
            rows = [
                (
                    version["version"],
                    version["branch"],
                    moment(version["opened"]),
                    version["state"],
                    version["model"],
                    _current(version),
                )
                for version in versions
            ]
            self._context.list(arguments, versions, ("version", "branch", "asked", "state", "model", ""), rows)
            return
        chosen = next((version for version in versions if str(version["version"]) == arguments.text), None)
        if chosen is None:
            raise AgentError(
                f"there is no version {arguments.text}; the answers to this cell have the numbers 1 to {len(versions)}."
            )
        self._context.show_version(answer, chosen)

    def fork(self, line: str) -> None:
        arguments = CommandArguments(line, "--into")
        if arguments.words and not (len(arguments.words) == 1 and arguments.text.isdecimal()):
            raise AgentError(
                "Usage: %agent fork [N] [--into ID] [--use]. The new session has the first N turns of this one."
            )
        body: dict[str, Any] = {"bind": "--use" in arguments.flags}
        body |= {"turns": int(arguments.text)} if arguments.words else {}
        body |= {"id": arguments.option} if arguments.option else {}
        fork = self._context.server.call("POST", session_path(self._context.require_session(), "fork"), body)
        use = "this notebook continues it" if fork["bound"] else f"%agent use {fork['id']} continues it"
        self._print_line(f"The session {fork['id']} has {turn_count(fork['turns'])} of this one; {use}.")

    # ------------------------------------------------------------------------------------------- undo and delete

    def undo(self, line: str) -> None:
        session = self._context.require_session()
        answer = self._context.server.call("POST", session_path(session, "undo"), {}, revision=session["revision"])
        undone = answer["undone"]
        if undone is None:
            self._print_line("There is no turn to remove.")
            return
        self._context.last_turn = ""
        prompt = " ".join(str(undone["prompt"]).split())
        short = prompt if len(prompt) <= 60 else prompt[:59] + "…"
        self._print_line(f"Removed: “{short}” and its answer; the model no longer reads them.")
        if undone["ran"]:
            calls = ", ".join(dict.fromkeys(undone["ran"]))
            self._print_line(
                f"Effects of its calls ({calls}) remain: variables, files, and data that was sent elsewhere."
            )

    def clear(self, line: str) -> None:
        arguments, session = CommandArguments(line), self._context.require_session()
        self._context.confirm(
            arguments, f"Delete all {turn_count(session['turns'])} of {_display_name(session)}, on every branch?"
        )
        self._context.server.call("POST", session_path(session, "clear"), {}, revision=session["revision"])
        self._context.last_turn = ""
        self._print_line("This session is empty; the outputs in the cells stay until you clear them.")

    def delete(self, line: str) -> None:
        arguments = CommandArguments(line)
        identity = _require_name(
            arguments.text, "the id of the session is missing: %agent delete ID. %agent sessions lists the ids."
        )
        session = self._context.server.call("GET", f"{route('sessions', identity)}?format=facts")
        self._context.confirm(
            arguments, f"Delete {_display_name(session)} with {turn_count(session['turns'])} permanently?"
        )
        self._context.server.call("DELETE", session_path(session), revision=session["revision"])
        self._print_line(f"The session {identity} is deleted.")

    # ------------------------------------------------------------------------------------------- names and notes

    def title(self, line: str) -> None:
        if not line:
            self._print_line(_display_name(self._context.require_session()))
            return
        changed = self._context.server.call("PATCH", session_path(self._context.require_session()), {"title": line})
        self._print_line(f"The title of this session is {_display_name(changed)}.")

    def tags(self, line: str) -> None:
        arguments, session = CommandArguments(line), self._context.require_session()
        if arguments.words or "--none" in arguments.flags:
            tags = [tag.strip() for tag in arguments.text.split(",") if tag.strip()]
            session = self._context.server.call("PATCH", session_path(session), {"tags": tags})
        self._context.list(arguments, session["tags"], ("tag",), [(tag,) for tag in session["tags"]])

    def note(self, line: str) -> None:
        arguments = CommandArguments(line)
        pairs = [word.partition("=") for word in arguments.words]
        if any(not (key and equals) for key, equals, _ in pairs):
            raise AgentError("Usage: %agent note KEY=VALUE. Quote a value with spaces: %agent note 'KEY=SOME WORDS'.")
        notes = self._update_notes({key: _value(value) for key, _, value in pairs})
        rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in notes.items()]
        self._context.list(arguments, dict(notes), ("note", ""), rows)

    def _update_notes(self, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change the session's notes and return all of them. If another client changed the session at the same time,
        the change is tried again."""
        for attempt in range(TRIES):
            session = self._context.require_session()
            notes = {key: value for key, value in {**session["metadata"], **change}.items() if value != ""}
            if not change:
                return notes
            try:
                self._context.server.call(
                    "PATCH", session_path(session), {"metadata": notes}, revision=session["revision"]
                )
                return notes
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    # ------------------------------------------------------------------------------------------------ private mode

    def private(self, line: str) -> None:
        session = self._context.find_session()
        is_private = session is not None and session["private"]
        if line not in ("", "off"):
            raise AgentError("%agent private starts a private conversation; %agent private off ends it.")
        if line == "off":
            if not is_private:
                raise AgentError("nothing changed: this conversation is not private.")
            self._context.server.call("DELETE", "binding")
            self._context.last_turn = ""
            self._print_line("The private conversation is deleted. This notebook continues its session from before.")
            return
        if not is_private:
            self._context.server.call("POST", "sessions", {"private": True, "bind": True})
            self._context.last_turn = ""
        self._print_line(
            "Private: from now on this conversation is kept in memory only, until %agent private off or the end of the "
            "server. It is in no file, sidecar, transcript or search. Cell outputs are in the notebook once you save "
            "it, and the server of a remote model sees the requests."
        )

    def unbind(self, line: str) -> None:
        answer = self._context.server.call("DELETE", "binding")
        self._context.last_turn = ""
        if answer["unbound"] is None:
            self._print_line("This notebook has no session.")
            return
        now = f"continues {answer['session']}" if answer["session"] else "starts a new one with its next turn"
        self._print_line(
            f"This notebook is detached from {answer['unbound']} and {now}. To return: %agent use {answer['unbound']}"
        )


def _require_name(line: str, usage: str) -> str:
    """Return ``line``, the argument of a command that needs one. If it is empty, raises AgentError with the text
    ``usage``."""
    if not line:
        raise AgentError(usage)
    return line


def _current(entry: Json) -> str:
    return "current" if entry["current"] else ""


def _display_name(session: Json) -> str:
    return str(session["title"] or session["id"])


def _value(text: str) -> Any:
    """Parse ``text`` as JSON if it is JSON, such as a number or a list. Otherwise return the text unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text
