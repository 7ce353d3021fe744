"""``%agent`` commands on the conversation: branches, versions, title, tags, notes, undo, private mode."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from agent_kernel.core.errors import Conflict
from agent_kernel.notebook.display.render import Bundle, json_bundle, line_bundle, moment, table_bundle
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.server_client import ServerClient, quote_segment

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
FLAGS = ("--json", "--yes", "--use", "--none")
TRIES = 3

Json: TypeAlias = Mapping[str, Any]
Say: TypeAlias = Callable[[Bundle], None]
Show: TypeAlias = Callable[[Json], None]


class CommandArguments:
    """The parsed arguments of a command: flags, at most one option with a value, and the remaining words."""

    def __init__(self, rest: str, option: str = "") -> None:
        """Parse ``rest``. Raises AgentError for an unclosed quote, an unknown flag or an option without its value."""
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise AgentError(f"{rest!r} cannot be read: {error}.") from None
        self.option = ""
        if option and option in words:
            index = words.index(option)
            if index + 1 == len(words):
                raise AgentError(f"{option} needs a value.")
            self.option = words.pop(index + 1)
            words.pop(index)
        self.flags = {word for word in words if word in FLAGS}
        unknown = [word for word in words if word.startswith("--") and word not in FLAGS]
        if unknown:
            raise AgentError(f"this command has no option {unknown[0]}; %agent help lists the options.")
        self.rest = [word for word in words if word not in FLAGS]

    @property
    def text(self) -> str:
        return " ".join(self.rest)


class ConversationCommands:
    """One method for each command. ``show`` displays a stored answer; ``last_turn`` is the id of the kernel's last
    turn."""

    def __init__(self, server: Callable[[], ServerClient], person: Person, say: Say, show: Show) -> None:
        self._server = server
        self._person = person
        self._say = say
        self._show = show
        self.last_turn = ""

    def require_session(self) -> Json:
        """Return the session of this notebook. Raises AgentError when it has none."""
        session: Json | None = self._call("GET", "binding")["session"]
        if session is None:
            raise AgentError("this notebook has no session yet; the first %%agent cell starts one.")
        return session

    # ------------------------------------------------------------------------------------------- branches

    def branches(self, rest: str) -> None:
        words = CommandArguments(rest)
        branches = self._call("GET", f"{_path(self.require_session())}/branches")["branches"]
        rows = [
            (
                branch["name"],
                branch["turns"],
                branch["parent"],
                moment(branch["created"]),
                "current" if branch["current"] else "",
            )
            for branch in branches
        ]
        self._list(words, branches, ("branch", "turns", "from", "made", ""), rows)

    def switch(self, rest: str) -> None:
        name = self._require_name(rest, "%agent switch NAME; %agent branches lists them.")
        branch = self._call("PUT", f"{_path(self.require_session())}/branch", {"name": name})
        self._tell(f"This notebook continues the branch {name}, which has {_turns(branch['turns'])}.")

    def branch(self, rest: str) -> None:
        words = rest.strip()
        if words and not words.isdecimal():
            raise AgentError("%agent branch [N]: N is how many turns of this branch the new one begins with.")
        made = self._create_branch(self.require_session(), words)
        left = f"{_turns(made['turns'])} of {made['parent']}" if made["parent"] else _turns(made["turns"])
        self._tell(f"This notebook continues the new branch {made['name']}, which starts with {left}.")

    def go_on(self, node: str) -> None:
        """Switch to the branch named ``node``, or to a new branch after turn number ``node``."""
        session = self.require_session()
        known = {branch["name"] for branch in self._call("GET", f"{_path(session)}/branches")["branches"]}
        if node not in known and not node.isdecimal():
            raise AgentError(f"--branch is the name of a branch ({', '.join(sorted(known))}) or the number of a turn.")
        if node not in known:
            self._create_branch(session, node)
        elif node != session["branch"]:
            self._call("PUT", f"{_path(session)}/branch", {"name": node})

    def _create_branch(self, session: Json, number: str) -> Json:
        """Create a branch from the first ``number`` turns of the current one, or from all of them."""
        body: dict[str, Any] = {}
        if number:
            turns = self._call("GET", f"{_path(session)}/items?limit=0")["turns"]
            if int(number) > len(turns):
                raise AgentError(f"there is no turn {number}; this branch has {_turns(len(turns))}.")
            body = {"before": turns[int(number)]["id"]} if int(number) < len(turns) else {}
        self.last_turn = ""
        return self._call("POST", f"{_path(session)}/branches", body)

    def drop(self, rest: str) -> None:
        words = CommandArguments(rest)
        name = self._require_name(words.text, "%agent drop NAME; %agent branches lists them.")
        session = self.require_session()
        self._confirm(words, f"Delete the branch {name} permanently?")
        self._call("DELETE", f"{_path(session)}/branches/{quote_segment(name)}", seen=session["revision"])
        self._tell(f"The branch {name} is deleted.")

    def versions(self, rest: str) -> None:
        words = CommandArguments(rest)
        session = self.require_session()
        turn = self.last_turn or self._newest(session)
        answer = self._call("GET", f"turns/{quote_segment(turn)}/versions")
        versions = answer["versions"]
        if not words.rest:
            rows = [
                (
                    version["version"],
                    version["branch"],
                    moment(version["opened"]),
                    version["state"],
                    version["model"],
                    "current" if version["current"] else "",
                )
                for version in versions
            ]
            self._list(words, versions, ("version", "branch", "asked", "state", "model", ""), rows)
            return
        chosen = next((version for version in versions if str(version["version"]) == words.text), None)
        if chosen is None:
            raise AgentError(f"there is no version {words.text}; there are 1 to {len(versions)}.")
        version = {**chosen, "number": chosen["version"], "count": len(versions), "replaces": ""}
        self._show({**version, "session": answer["session"], "answered": chosen["closed"] or chosen["opened"]})

    def fork(self, rest: str) -> None:
        words = CommandArguments(rest, "--into")
        if words.rest and not (len(words.rest) == 1 and words.text.isdecimal()):
            raise AgentError("%agent fork [N] [--into ID] [--use]: N is how many turns the new session has.")
        body: dict[str, Any] = {"bind": "--use" in words.flags}
        body |= {"turns": int(words.text)} if words.rest else {}
        body |= {"id": words.option} if words.option else {}
        fork = self._call("POST", f"{_path(self.require_session())}/fork", body)
        use = "this notebook continues it" if fork["bound"] else f"%agent use {fork['id']} continues it"
        self._tell(f"The session {fork['id']} has {_turns(fork['turns'])} of this one; {use}.")

    # ------------------------------------------------------------------------------------------- undo and delete

    def undo(self, rest: str) -> None:
        session = self.require_session()
        answer = self._call("POST", f"{_path(session)}/undo", {}, seen=session["revision"])
        undone = answer["undone"]
        if undone is None:
            self._tell("There is no turn to remove.")
            return
        self.last_turn = ""
        prompt = " ".join(str(undone["prompt"]).split())
        short = prompt if len(prompt) <= 60 else prompt[:59] + "…"
        self._tell(f"Removed: “{short}” and its answer; the model no longer reads them.")
        if undone["ran"]:
            calls = ", ".join(dict.fromkeys(undone["ran"]))
            self._tell(f"Effects of its calls ({calls}) remain: variables, files, and data that was sent elsewhere.")

    def clear(self, rest: str) -> None:
        words, session = CommandArguments(rest), self.require_session()
        self._confirm(words, f"Delete all {_turns(session['turns'])} of {_display_name(session)}, on every branch?")
        self._call("POST", f"{_path(session)}/clear", {}, seen=session["revision"])
        self.last_turn = ""
        self._tell("This session is empty; the outputs in the cells stay until you clear them.")

    def delete(self, rest: str) -> None:
        words = CommandArguments(rest)
        identity = self._require_name(words.text, "%agent delete ID; %agent sessions lists them.")
        session = self._call("GET", f"sessions/{quote_segment(identity)}?format=facts")
        self._confirm(words, f"Delete {_display_name(session)} with {_turns(session['turns'])} permanently?")
        self._call("DELETE", _path(session), seen=session["revision"])
        self._tell(f"The session {identity} is deleted.")

    # ------------------------------------------------------------------------------------------- names and notes

    def title(self, rest: str) -> None:
        if not rest:
            self._tell(_display_name(self.require_session()))
            return
        changed = self._call("PATCH", _path(self.require_session()), {"title": rest})
        self._tell(f"The title of this session is {_display_name(changed)}.")

    def tags(self, rest: str) -> None:
        words, session = CommandArguments(rest), self.require_session()
        if words.rest or "--none" in words.flags:
            tags = [tag.strip() for tag in words.text.split(",") if tag.strip()]
            session = self._call("PATCH", _path(session), {"tags": tags})
        self._list(words, session["tags"], ("tag",), [(tag,) for tag in session["tags"]])

    def note(self, rest: str) -> None:
        words = CommandArguments(rest)
        pairs = [word.partition("=") for word in words.rest]
        if any(not (key and equals) for key, equals, _ in pairs):
            raise AgentError("%agent note KEY=VALUE; with spaces in quotes: %agent note 'KEY=SOME WORDS'.")
        notes = self._update_notes({key: _value(value) for key, _, value in pairs})
        rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in notes.items()]
        self._list(words, dict(notes), ("note", ""), rows)

    def _update_notes(self, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change notes and return them all. Retried when another window changed the session at the same time."""
        for attempt in range(TRIES):
            session = self.require_session()
            notes = {key: value for key, value in {**session["metadata"], **change}.items() if value != ""}
            if not change:
                return notes
            try:
                self._call("PATCH", _path(session), {"metadata": notes}, seen=session["revision"])
                return notes
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    # ------------------------------------------------------------------------------------------- private

    def private(self, rest: str) -> None:
        session: Json | None = self._call("GET", "binding")["session"]
        is_private = session is not None and session["private"]
        if rest not in ("", "off"):
            raise AgentError("%agent private starts a private conversation; %agent private off ends it.")
        if rest == "off":
            if not is_private:
                raise AgentError("this conversation is not private.")
            self._call("DELETE", "binding")
            self.last_turn = ""
            self._tell("The private conversation is deleted. This notebook continues its session from before.")
            return
        if not is_private:
            self._call("POST", "sessions", {"private": True, "bind": True})
            self.last_turn = ""
        self._tell(
            "Private: from now on this conversation is kept in memory only, until %agent private off or the end of the "
            "server. It is in no file, sidecar, transcript or search. Cell outputs are in the notebook once you save "
            "it, and the server of a remote model sees the requests."
        )

    def unbind(self, rest: str) -> None:
        answer = self._call("DELETE", "binding")
        self.last_turn = ""
        if answer["unbound"] is None:
            self._tell("This notebook has no session.")
            return
        now = f"continues {answer['session']}" if answer["session"] else "starts a new one with its next turn"
        self._tell(
            f"This notebook is detached from {answer['unbound']} and {now}. To return: %agent use {answer['unbound']}"
        )

    # ------------------------------------------------------------------------------------------- helpers

    def _newest(self, session: Json) -> str:
        turns = self._call("GET", f"{_path(session)}/items?limit=0")["turns"]
        if not turns:
            raise AgentError("this session has no turn yet.")
        return str(turns[-1]["id"])

    def _call(self, method: str, path: str, body: Json | None = None, *, seen: int | None = None) -> dict[str, Any]:
        return self._server().call(method, path, body, seen=seen)

    def _confirm(self, words: CommandArguments, question: str) -> None:
        if "--yes" not in words.flags and not self._person.agrees(question):
            raise AgentError("nothing changed: it was not confirmed (--yes confirms it beforehand).")

    def _require_name(self, rest: str, usage: str) -> str:
        name = rest.strip()
        if not name:
            raise AgentError(usage)
        return name

    def _list(self, words: CommandArguments, value: Any, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if "--json" in words.flags:
            self._say(json_bundle(value))
        else:
            self._say(table_bundle(head, rows) if rows else line_bundle(f"There is no {head[0]} yet."))

    def _tell(self, text: str) -> None:
        self._say(line_bundle(text))


def _path(session: Json) -> str:
    return f"sessions/{quote_segment(session['id'])}"


def _display_name(session: Json) -> str:
    return str(session["title"] or session["id"])


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _value(text: str) -> Any:
    """Parse ``text`` as JSON where possible (numbers, lists); any other text is returned as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
