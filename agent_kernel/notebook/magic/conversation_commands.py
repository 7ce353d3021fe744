"""``%agent`` on the conversation of this notebook: its branches, versions, name and notes, and what is taken back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from agent_kernel.core.errors import Conflict
from agent_kernel.notebook.display.render import Bundle, json_bundle, line_bundle, moment, table_bundle
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.server_client import Server, quoted

HELP = {
    "branch": "[N]: a new branch that goes on behind turn N of this one, or behind its last turn",
    "branches": "the branches of this conversation",
    "switch": "NAME: go on with another branch",
    "drop": "NAME: delete a branch and what no other branch shows",
    "versions": "the answers that the last cell has had; N: show one of them",
    "fork": "[N] [--into ID] [--use]: a new session with the first N turns; --use: this notebook goes on with it",
    "undo": "take the last turn back",
    "clear": "forget every turn of this session; clear outputs: only what tools gave back in cells you have cleared",
    "delete": "ID: delete a session",
    "title": "TEXT: the name of this session",
    "tags": "A, B: words to find it by; --none",
    "note": "KEY=VALUE: keep something with this session; KEY= forgets it",
    "private": "[off]: from now on this conversation is in memory only; off forgets it and goes back",
    "unbind": "this notebook lets go of its session, which stays",
}
FLAGS = ("--json", "--yes", "--use", "--none")
TRIES = 3

Json: TypeAlias = Mapping[str, Any]
Say: TypeAlias = Callable[[Bundle], None]
Show: TypeAlias = Callable[[Json], None]


class Words:
    """What stands behind a command: flags, one option with a value, and the rest."""

    def __init__(self, rest: str, option: str = "") -> None:
        """Raises AgentError for quotes without an end and for a flag that there is not."""
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise AgentError(f"{rest!r} can not be read: {error}.") from None
        self.option = ""
        if option and option in words:
            place = words.index(option)
            if place + 1 == len(words):
                raise AgentError(f"{option} needs a value.")
            self.option = words.pop(place + 1)
            words.pop(place)
        self.flags = {word for word in words if word in FLAGS}
        unknown = [word for word in words if word.startswith("--") and word not in FLAGS]
        if unknown:
            raise AgentError(f"there is no {unknown[0]} here; %agent help lists what there is.")
        self.rest = [word for word in words if word not in FLAGS]

    @property
    def text(self) -> str:
        return " ".join(self.rest)


class Conversation:
    """One method for each command. ``show`` shows a stored answer, ``last_turn`` is the last one of this kernel."""

    def __init__(self, server: Callable[[], Server], person: Person, say: Say, show: Show) -> None:
        self._server = server
        self._person = person
        self._say = say
        self._show = show
        self.last_turn = ""

    def bound(self) -> Json:
        """The session of this notebook. Raises AgentError when it has none."""
        session: Json | None = self._call("GET", "binding")["session"]
        if session is None:
            raise AgentError("this notebook has no session yet; the first %%agent cell begins one.")
        return session

    # ------------------------------------------------------------------------------------------- branches

    def branches(self, rest: str) -> None:
        words = Words(rest)
        found = self._call("GET", f"{_path(self.bound())}/branches")["branches"]
        rows = [
            (
                branch["name"],
                branch["turns"],
                branch["parent"],
                moment(branch["created"]),
                "current" if branch["current"] else "",
            )
            for branch in found
        ]
        self._list(words, found, ("branch", "turns", "from", "made", ""), rows)

    def switch(self, rest: str) -> None:
        name = self._needed(rest, "%agent switch NAME; %agent branches lists them.")
        branch = self._call("PUT", f"{_path(self.bound())}/branch", {"name": name})
        self._tell(f"This notebook goes on with the branch {name}, which has {_turns(branch['turns'])}.")

    def branch(self, rest: str) -> None:
        words = rest.strip()
        if words and not words.isdecimal():
            raise AgentError("%agent branch [N]: N is how many turns of this branch the new one begins with.")
        made = self._branched(self.bound(), words)
        left = f"{_turns(made['turns'])} of {made['parent']}" if made["parent"] else _turns(made["turns"])
        self._tell(f"This notebook goes on with the new branch {made['name']}, which begins with {left}.")

    def go_on(self, node: str) -> None:
        """With the branch of that name, or with a new one behind turn ``node``."""
        session = self.bound()
        known = {branch["name"] for branch in self._call("GET", f"{_path(session)}/branches")["branches"]}
        if node not in known and not node.isdecimal():
            raise AgentError(f"--branch is the name of a branch ({', '.join(sorted(known))}) or the number of a turn.")
        if node not in known:
            self._branched(session, node)
        elif node != session["branch"]:
            self._call("PUT", f"{_path(session)}/branch", {"name": node})

    def _branched(self, session: Json, number: str) -> Json:
        """A branch that has the first ``number`` turns of the current one, or all of them."""
        body: dict[str, Any] = {}
        if number:
            turns = self._call("GET", f"{_path(session)}/items?limit=0")["turns"]
            if int(number) > len(turns):
                raise AgentError(f"there is no turn {number}; this branch has {_turns(len(turns))}.")
            body = {"before": turns[int(number)]["id"]} if int(number) < len(turns) else {}
        self.last_turn = ""
        return self._call("POST", f"{_path(session)}/branches", body)

    def drop(self, rest: str) -> None:
        words = Words(rest)
        name = self._needed(words.text, "%agent drop NAME; %agent branches lists them.")
        session = self.bound()
        self._confirm(words, f"Delete the branch {name} for good?")
        self._call("DELETE", f"{_path(session)}/branches/{quoted(name)}", seen=session["revision"])
        self._tell(f"The branch {name} is deleted.")

    def versions(self, rest: str) -> None:
        words = Words(rest)
        session = self.bound()
        turn = self.last_turn or self._newest(session)
        answer = self._call("GET", f"turns/{quoted(turn)}/versions")
        found = answer["versions"]
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
                for version in found
            ]
            self._list(words, found, ("version", "branch", "asked", "state", "model", ""), rows)
            return
        chosen = next((version for version in found if str(version["version"]) == words.text), None)
        if chosen is None:
            raise AgentError(f"there is no version {words.text}; there are 1 to {len(found)}.")
        told = {**chosen, "number": chosen["version"], "count": len(found), "replaces": ""}
        self._show({**told, "session": answer["session"], "answered": chosen["closed"] or chosen["opened"]})

    def fork(self, rest: str) -> None:
        words = Words(rest, "--into")
        if words.rest and not (len(words.rest) == 1 and words.text.isdecimal()):
            raise AgentError("%agent fork [N] [--into ID] [--use]: N is how many turns the new session has.")
        body: dict[str, Any] = {"bind": "--use" in words.flags}
        body |= {"turns": int(words.text)} if words.rest else {}
        body |= {"id": words.option} if words.option else {}
        fork = self._call("POST", f"{_path(self.bound())}/fork", body)
        use = "this notebook goes on with it" if fork["bound"] else f"%agent use {fork['id']} goes on with it"
        self._tell(f"The session {fork['id']} has {_turns(fork['turns'])} of this one; {use}.")

    # ------------------------------------------------------------------------------------------- taking back

    def undo(self, rest: str) -> None:
        session = self.bound()
        answer = self._call("POST", f"{_path(session)}/undo", {}, seen=session["revision"])
        undone = answer["undone"]
        if undone is None:
            self._tell("There is no turn to take back.")
            return
        self.last_turn = ""
        said = " ".join(str(undone["prompt"]).split())
        short = said if len(said) <= 60 else said[:59] + "…"
        self._tell(f"Taken back: “{short}” and its answer; the model does not know of them any more.")
        if undone["ran"]:
            calls = ", ".join(dict.fromkeys(undone["ran"]))
            self._tell(f"Not taken back is what it ran ({calls}): variables, files, and what was sent elsewhere.")

    def clear(self, rest: str) -> None:
        words, session = Words(rest), self.bound()
        self._confirm(words, f"Forget all {_turns(session['turns'])} of {_named(session)}, on every branch?")
        self._call("POST", f"{_path(session)}/clear", {}, seen=session["revision"])
        self.last_turn = ""
        self._tell("This session is empty; outputs of the cells stay until you clear them.")

    def delete(self, rest: str) -> None:
        words = Words(rest)
        identity = self._needed(words.text, "%agent delete ID; %agent sessions lists them.")
        session = self._call("GET", f"sessions/{quoted(identity)}?format=facts")
        self._confirm(words, f"Delete {_named(session)} with {_turns(session['turns'])} for good?")
        self._call("DELETE", _path(session), seen=session["revision"])
        self._tell(f"The session {identity} is deleted.")

    # ------------------------------------------------------------------------------------------- names and notes

    def title(self, rest: str) -> None:
        if not rest:
            self._tell(_named(self.bound()))
            return
        changed = self._call("PATCH", _path(self.bound()), {"title": rest})
        self._tell(f"This session is called {_named(changed)}.")

    def tags(self, rest: str) -> None:
        words, session = Words(rest), self.bound()
        if words.rest or "--none" in words.flags:
            tags = [tag.strip() for tag in words.text.split(",") if tag.strip()]
            session = self._call("PATCH", _path(session), {"tags": tags})
        self._list(words, session["tags"], ("tag",), [(tag,) for tag in session["tags"]])

    def note(self, rest: str) -> None:
        words = Words(rest)
        pairs = [word.partition("=") for word in words.rest]
        if any(not (key and equals) for key, equals, _ in pairs):
            raise AgentError("%agent note KEY=VALUE; with spaces in quotes: %agent note 'KEY=SOME WORDS'.")
        notes = self._noted({key: _value(value) for key, _, value in pairs})
        rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in notes.items()]
        self._list(words, dict(notes), ("note", ""), rows)

    def _noted(self, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Another window may write its notes at the same time: then it is done again upon those."""
        for attempt in range(TRIES):
            session = self.bound()
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
            raise AgentError("%agent private begins a private conversation, %agent private off ends it.")
        if rest == "off":
            if not is_private:
                raise AgentError("this conversation is not private.")
            self._call("DELETE", "binding")
            self.last_turn = ""
            self._tell("The private conversation is forgotten. This notebook goes on where it was before.")
            return
        if not is_private:
            self._call("POST", "sessions", {"private": True, "bind": True})
            self.last_turn = ""
        self._tell(
            "Private: from now on this conversation is kept in memory only and is gone with %agent private off or the "
            "server. No file, sidecar, transcript or search has it. Outputs of cells are in the notebook once you save "
            "it, and a remote model's server sees what it is asked."
        )

    def unbind(self, rest: str) -> None:
        answer = self._call("DELETE", "binding")
        self.last_turn = ""
        if answer["unbound"] is None:
            self._tell("This notebook has no session.")
            return
        now = f"goes on with {answer['session']}" if answer["session"] else "begins a new one with its next turn"
        self._tell(f"This notebook has let go of {answer['unbound']} and {now}. Back: %agent use {answer['unbound']}")

    # ------------------------------------------------------------------------------------------- telling

    def _newest(self, session: Json) -> str:
        turns = self._call("GET", f"{_path(session)}/items?limit=0")["turns"]
        if not turns:
            raise AgentError("this session has no turn yet.")
        return str(turns[-1]["id"])

    def _call(self, method: str, path: str, body: Json | None = None, *, seen: int | None = None) -> dict[str, Any]:
        return self._server().call(method, path, body, seen=seen)

    def _confirm(self, words: Words, question: str) -> None:
        if "--yes" not in words.flags and not self._person.agrees(question):
            raise AgentError("nothing was changed: it was not confirmed (--yes confirms it beforehand).")

    def _needed(self, rest: str, usage: str) -> str:
        name = rest.strip()
        if not name:
            raise AgentError(usage)
        return name

    def _list(self, words: Words, value: Any, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if "--json" in words.flags:
            self._say(json_bundle(value))
        else:
            self._say(table_bundle(head, rows) if rows else line_bundle(f"There is no {head[0]} yet."))

    def _tell(self, text: str) -> None:
        self._say(line_bundle(text))


def _path(session: Json) -> str:
    return f"sessions/{quoted(session['id'])}"


def _named(session: Json) -> str:
    return str(session["title"] or session["id"])


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _value(text: str) -> Any:
    """Numbers, lists and so on as JSON has them; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
