"""Implements the ``%agent`` commands that run or show a turn: ask, fix, explain, improve, show, replay and approve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.notebook.kernel.cell_identity import CellIdentity
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic import fix_explain_improve, replay_command
from agent_kernel.notebook.magic.command_context import CommandContext
from agent_kernel.notebook.server_client import route
from agent_kernel.notebook.turn.approval_prompt import ApprovalPrompt, post_decision
from agent_kernel.notebook.turn.cell_options import CellOptions, parse_options, usage
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.pending_approvals import PendingApproval, PendingApprovals

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

RunTurn: TypeAlias = Callable[[CellOptions, str, str, fix_explain_improve.CellTask | None], None]
"""A function that is called with (options, prompt, cell, task) to run one turn in the current cell. ``task`` is set for
a request about an executed cell."""
BuildCellTask: TypeAlias = Callable[[Any, ExecutionHistory, str], fix_explain_improve.CellTask]


class TurnCommands:
    """Implements the commands that HELP lists, with one method for each. ``waiting`` are the approval requests of
    background turns."""

    def __init__(
        self,
        context: CommandContext,
        parts: KernelParts,
        cells: CellIdentity,
        waiting: PendingApprovals,
        run_turn: RunTurn,
    ) -> None:
        self._context = context
        self._parts = parts
        self._cells = cells
        self._waiting = waiting
        self._run_turn = run_turn

    def ask(self, line: str) -> None:
        request = parse_options(line)
        if request.help:
            self._usage("ask")
            return
        words = _unquote(request.words)
        if not words:
            raise AgentError('the question is missing: %agent ask "QUESTION"')
        self._run_turn(request, words, self._cells.id_of_line(line), None)

    def fix(self, line: str) -> None:
        self._ask_about_cell("fix", line, fix_explain_improve.build_fix_request)

    def explain(self, line: str) -> None:
        self._ask_about_cell("explain", line, fix_explain_improve.build_explain_request)

    def improve(self, line: str) -> None:
        self._ask_about_cell("improve", line, fix_explain_improve.build_improve_request)

    def _ask_about_cell(self, name: str, line: str, build: BuildCellTask) -> None:
        options = parse_options(line)
        if options.help:
            self._usage(name)
            return
        if options.result:
            raise AgentError(f"%agent {name} is about a cell and sets no variable. Leave out ->.")
        request = build(self._context.shell, self._parts.executions, _unquote(options.words))
        cell = self._cells.id_of_line(f"{name} {request.prompt}")
        if request.form == "fix":
            reason = self._reason_untried(options)
            if reason and request.review.reference:
                raise AgentError(fix_explain_improve.NO_DRAFT.format(reason=reason))
            options = replace(options, form="code") if reason else replace(options, form="fix", where="draft")
        elif options.form == "md":
            options = replace(options, form=request.form)
        self._run_turn(options, request.prompt, cell, request)

    def _reason_untried(self, options: CellOptions) -> str:
        """Return why a proposed cell cannot be tried in a draft, or "" if it can."""
        if options.background:
            return "a background turn has no draft"
        if options.where not in ("", "draft"):
            return f"you chose --in {options.where}"
        return self._parts.drafts.unfit() if options.form == "md" else f"you chose the format {options.form}"

    def show(self, line: str) -> None:
        """Show the answer of the turn that ``line`` names by its number in this conversation or by its id; without an
        argument, the answer of the last turn."""
        if line.isdecimal():
            turn = self._context.find_turn(int(line))
        else:
            turn = line or self._context.last_turn or self._context.find_turn()
        answer = self._context.server.call("GET", route("turns", turn, "versions"))
        self._context.show_version(answer, next(version for version in answer["versions"] if version["turn"] == turn))

    def replay(self, line: str) -> None:
        if replay_command.names_a_file(line):
            replay_command.replay(line)
        else:
            self.show(line)

    def approve(self, line: str) -> None:
        if line:
            raise AgentError("%agent approve takes no arguments; it asks about each waiting call in turn.")
        if not self._waiting.questions:
            self._context.print_line("No approval request waits for your answer.")
        for question in self._waiting.questions:
            self._answer(question)

    def _answer(self, question: PendingApproval) -> None:
        context, request = self._context, question.request
        context.publish(question.card.bundle())
        prompt = ApprovalPrompt(context.person, context.consent, question.session, remembered=False)
        decision, reason = prompt.decision(request, lambda state: None)
        try:
            post_decision(context.server, request, decision, reason)
        except (Conflict, NotFound) as elsewhere:
            context.print_line(elsewhere.message)
        self._waiting.remove(request.approval)

    def _usage(self, name: str) -> None:
        self._context.publish({"text/plain": f"%agent {name} {HELP[name]}\n\n{usage()}"})


def _unquote(words: str) -> str:
    """Remove the quotes around the whole prompt: users write ``%agent ask "..."``."""
    stripped = words.strip()
    wrapped = len(stripped) > 1 and stripped[0] in QUOTES and stripped[-1] == stripped[0]
    return stripped[1:-1].strip() if wrapped and stripped[0] not in stripped[1:-1] else stripped
