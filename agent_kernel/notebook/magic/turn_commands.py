"""``%agent`` commands that are turns, or show one: ask, fix, show, replay, and the answers that turns wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.kernel.cell_identity import Cells
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic import fix_command, replay_command
from agent_kernel.notebook.magic.conversation_commands import Show
from agent_kernel.notebook.server_client import Server, quoted
from agent_kernel.notebook.turn.approval_prompt import Asking
from agent_kernel.notebook.turn.background_turns import Background
from agent_kernel.notebook.turn.cell_options import Request, parsed, usage
from agent_kernel.notebook.turn.execution_history import Executions
from agent_kernel.notebook.turn.pending_approvals import Question
from agent_kernel.notebook.turn.session_permissions import Consent

HELP = {
    "ask": "[options] WORDS: a turn of one line; the options are those of %%agent",
    "fix": "[options] [WORDS]: what is wrong with the cell that failed last; proposes it corrected, as a cell below",
    "show": "[N|TURN]: the last answer once more, or turn N of this conversation, from what was stored",
    "replay": "FILE [--verify] [--live] [--turn N]: which answers of NAME.agent.json still hold; N or TURN: as show",
    "approve": "answer what turns in the background ask",
}
QUOTES = "\"'"

Turn: TypeAlias = Callable[[Request, str, str, Sequence[dict[str, str]], str], None]
"""(request, prompt, cell, notes, failed): one turn, lived through in the cell that runs. Code equal to ``failed``
is not proposed."""


@dataclass(frozen=True, slots=True)
class Here:
    """What these commands have of their kernel."""

    shell: Any
    server: Callable[[], Server]
    bound: Callable[[], Mapping[str, Any]]
    person: Person
    consent: Consent
    executions: Executions
    cells: Cells
    background: Background
    turn: Turn
    show: Show
    last_turn: Callable[[], str]


class TurnCommands:
    """One method for each command, by its name; ``table`` has them."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.table: dict[str, Callable[[str], None]] = {
            "ask": self.ask,
            "fix": self.fix,
            "show": self.show,
            "replay": self.replay,
            "approve": self.approve,
        }

    def ask(self, rest: str) -> None:
        request = parsed(rest)
        if request.help:
            self._usage("ask")
            return
        words = _unquoted(request.words)
        if not words:
            raise AgentError('%agent ask "what shall I do?": the words are missing.')
        self._here.turn(request, words, self._here.cells.id_of_line(rest), (), "")

    def fix(self, rest: str) -> None:
        request = parsed(rest)
        if request.help:
            self._usage("fix")
            return
        asked = fix_command.question(self._here.shell, self._here.executions, _unquoted(request.words))
        cell = self._here.cells.id_of_line(f"fix {asked.prompt}")
        request = replace(request, form="code" if request.form == "md" else request.form)
        self._here.turn(request, asked.prompt, cell, asked.notes, asked.source)

    def show(self, rest: str) -> None:
        turn = self._named(rest.strip())
        answer = self._here.server().call("GET", f"turns/{quoted(turn)}/versions")
        found = answer["versions"]
        told = next(version for version in found if version["turn"] == turn)
        several = {"number": told["version"], "count": len(found), "replaces": ""}
        answered = told["closed"] or told["opened"]
        self._here.show({**told, **several, "session": answer["session"], "answered": answered})

    def replay(self, rest: str) -> None:
        if replay_command.names_a_file(rest):
            replay_command.replay(rest)
        else:
            self.show(rest)

    def approve(self, rest: str) -> None:
        if rest:
            raise AgentError("%agent approve asks for each call that waits; it takes no words.")
        questions = self._here.background.waiting.questions
        if not questions:
            self._tell("Nothing waits for your answer.")
        for question in questions:
            self._answer(question)

    def _answer(self, question: Question) -> None:
        here, asked = self._here, question.asked
        here.shell.display_pub.publish(question.card.bundle())
        asking = Asking(here.person, here.consent, question.session, remembered=False)
        decision, reason = asking.decision(asked, lambda state: None)
        body = {"decision": decision, "message": reason, "shown": asked.shown}
        try:
            here.server().call("POST", f"agent/approvals/{quoted(asked.approval)}", body)
        except (Conflict, NotFound) as elsewhere:
            self._tell(elsewhere.message)
        here.background.waiting.resolved(asked.approval)

    def _named(self, name: str) -> str:
        """The id of a turn: as it is, the N-th of this conversation, or the last."""
        if name and not name.isdecimal():
            return name
        if not name and (last := self._here.last_turn()):
            return last
        session = self._here.bound()
        turns = self._here.server().call("GET", f"sessions/{quoted(str(session['id']))}/items?limit=0")["turns"]
        if not turns:
            raise AgentError("this session has no turn yet.")
        if name and not 1 <= int(name) <= len(turns):
            raise AgentError(f"there is no turn {name}; there are 1 to {len(turns)}.")
        return str(turns[int(name) - 1 if name else -1]["id"])

    def _usage(self, name: str) -> None:
        text = f"%agent {name} {HELP[name]}\n\n{usage()}"
        self._here.shell.display_pub.publish({"text/plain": text})

    def _tell(self, text: str) -> None:
        self._here.shell.display_pub.publish(line_bundle(text))


def _unquoted(words: str) -> str:
    """As people write it: ``%agent ask "..."``."""
    stripped = words.strip()
    wrapped = len(stripped) > 1 and stripped[0] in QUOTES and stripped[-1] == stripped[0]
    return stripped[1:-1].strip() if wrapped and stripped[0] not in stripped[1:-1] else stripped
