"""``%agent`` commands that run or show a turn: ask, fix, explain, improve, show, replay and approve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.kernel.cell_identity import CellIdentity
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic import cell_requests, replay_command
from agent_kernel.notebook.magic.conversation_commands import Show
from agent_kernel.notebook.server_client import ServerClient, quote_segment
from agent_kernel.notebook.turn.approval_prompt import ApprovalPrompt
from agent_kernel.notebook.turn.background_turns import BackgroundTurns
from agent_kernel.notebook.turn.cell_options import CellOptions, parse_options, usage
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.pending_approvals import PendingApproval
from agent_kernel.notebook.turn.session_permissions import Consent

HELP = {
    "ask": "[options] [-> NAME: TYPE] WORDS: run a turn in one line; it takes the options of %%agent",
    "fix": "[options] [In[N]] [WORDS]: correct the cell that failed last, or In[N], and propose what ran in a draft",
    "explain": "[options] [WORDS]: explain the last cell, and its error if it failed; no code runs",
    "improve": "[options] [WORDS]: propose a better version of the last cell that does the same in a draft",
    "show": "[N|TURN]: show the last answer again, or turn N of this conversation",
    "replay": "FILE [--verify] [--live] [--turn N]: check the answers of NAME.agent.json; N or TURN: same as show",
    "approve": "answer the approval requests of background turns",
}
QUOTES = "\"'"

RunTurn: TypeAlias = Callable[[CellOptions, str, str, Sequence[dict[str, str]], cell_requests.CellTask | None], None]
"""Called with (options, prompt, cell, notes, about): runs one turn in the current cell, about a cell that ran."""
BuildCellTask: TypeAlias = Callable[[Any, ExecutionHistory, str], cell_requests.CellTask]


@dataclass(frozen=True, slots=True)
class KernelContext:
    """The parts of the kernel that these commands use. ``unfit`` returns why no draft can be made, or ""."""

    shell: Any
    server: Callable[[], ServerClient]
    bound: Callable[[], Mapping[str, Any]]
    person: Person
    consent: Consent
    executions: ExecutionHistory
    cells: CellIdentity
    background: BackgroundTurns
    unfit: Callable[[], str]
    turn: RunTurn
    show: Show
    last_turn: Callable[[], str]


class TurnCommands:
    """One method for each command; ``table`` maps names to methods."""

    def __init__(self, here: KernelContext) -> None:
        self._here = here
        self.table: dict[str, Callable[[str], None]] = {
            "ask": self.ask,
            "fix": self.fix,
            "explain": self.explain,
            "improve": self.improve,
            "show": self.show,
            "replay": self.replay,
            "approve": self.approve,
        }

    def ask(self, rest: str) -> None:
        request = parse_options(rest)
        if request.help:
            self._usage("ask")
            return
        words = _unquote(request.words)
        if not words:
            raise AgentError('the question is missing: %agent ask "QUESTION"')
        self._here.turn(request, words, self._here.cells.id_of_line(rest), (), None)

    def fix(self, rest: str) -> None:
        self._ask_about_cell("fix", rest, cell_requests.build_fix_request)

    def explain(self, rest: str) -> None:
        self._ask_about_cell("explain", rest, cell_requests.build_explain_request)

    def improve(self, rest: str) -> None:
        self._ask_about_cell("improve", rest, cell_requests.build_improve_request)

    def _ask_about_cell(self, name: str, rest: str, build: BuildCellTask) -> None:
        options = parse_options(rest)
        if options.help:
            self._usage(name)
            return
        if options.result:
            raise AgentError(f"%agent {name} is about a cell and sets no variable. Leave out ->.")
        request = build(self._here.shell, self._here.executions, _unquote(options.words))
        cell = self._here.cells.id_of_line(f"{name} {request.prompt}")
        if request.form == "fix":
            reason = self._draft_problem(options)
            if reason and request.review.reference:
                raise AgentError(cell_requests.NO_DRAFT.format(reason=reason))
            options = replace(options, form="code") if reason else replace(options, form="fix", where="draft")
        elif options.form == "md":
            options = replace(options, form=request.form)
        self._here.turn(options, request.prompt, cell, request.notes, request)

    def _draft_problem(self, options: CellOptions) -> str:
        """Return why a proposed cell cannot be tried in a draft, or ""."""
        if options.background:
            return "a background turn has no draft"
        if options.where not in ("", "draft"):
            return f"you chose --in {options.where}"
        return self._here.unfit() if options.form == "md" else f"you chose the format {options.form}"

    def show(self, rest: str) -> None:
        turn = self._find_turn(rest.strip())
        answer = self._here.server().call("GET", f"turns/{quote_segment(turn)}/versions")
        versions = answer["versions"]
        version = next(each for each in versions if each["turn"] == turn)
        position = {"number": version["version"], "count": len(versions), "replaces": ""}
        answered = version["closed"] or version["opened"]
        self._here.show({**version, **position, "session": answer["session"], "answered": answered})

    def replay(self, rest: str) -> None:
        if replay_command.names_a_file(rest):
            replay_command.replay(rest)
        else:
            self.show(rest)

    def approve(self, rest: str) -> None:
        if rest:
            raise AgentError("%agent approve takes no arguments; it asks about each waiting call in turn.")
        questions = self._here.background.waiting.questions
        if not questions:
            self._tell("Nothing waits for your answer.")
        for question in questions:
            self._answer(question)

    def _answer(self, question: PendingApproval) -> None:
        here, asked = self._here, question.asked
        here.shell.display_pub.publish(question.card.bundle())
        asking = ApprovalPrompt(here.person, here.consent, question.session, remembered=False)
        decision, reason = asking.decision(asked, lambda state: None)
        body = {"decision": decision, "message": reason, "shown": asked.shown}
        try:
            here.server().call("POST", f"agent/approvals/{quote_segment(asked.approval)}", body)
        except (Conflict, NotFound) as elsewhere:
            self._tell(elsewhere.message)
        here.background.waiting.remove(asked.approval)

    def _find_turn(self, name: str) -> str:
        """Return a turn's id: ``name`` itself, the N-th turn of this conversation, or the last turn."""
        if name and not name.isdecimal():
            return name
        if not name and (last := self._here.last_turn()):
            return last
        session = self._here.bound()
        turns = self._here.server().call("GET", f"sessions/{quote_segment(str(session['id']))}/items?limit=0")["turns"]
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


def _unquote(words: str) -> str:
    """Remove the quotes around the whole prompt: users write ``%agent ask "..."``."""
    stripped = words.strip()
    wrapped = len(stripped) > 1 and stripped[0] in QUOTES and stripped[-1] == stripped[0]
    return stripped[1:-1].strip() if wrapped and stripped[0] not in stripped[1:-1] else stripped
