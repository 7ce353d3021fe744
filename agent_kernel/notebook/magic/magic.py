"""The IPython magics ``%%agent`` (one turn in a cell) and ``%agent`` (commands), and their registration in a shell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from agent_kernel.core.errors import AgentKernelError, from_json
from agent_kernel.core.events import TurnFinished
from agent_kernel.notebook.display.render import AnswerVersion, TurnSummary
from agent_kernel.notebook.display.screen import CellScreen, Screen, screen_for
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.draft.draft import NO_REVIEW, Drafts
from agent_kernel.notebook.kernel.cell_identity import CellIdentity
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.inspection import user_variables
from agent_kernel.notebook.kernel.live_execution import LiveCode
from agent_kernel.notebook.kernel.one_line_errors import AgentError, AgentInterrupted, to_short_error
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.magic.command_context import CommandContext
from agent_kernel.notebook.magic.commands import Commands
from agent_kernel.notebook.magic.completion import MagicCompleter
from agent_kernel.notebook.magic.embedded_server import EmbeddedServer
from agent_kernel.notebook.magic.fix_explain_improve import NOT_TRIED, SAME, CellTask, diff_bundle, is_same_code
from agent_kernel.notebook.magic.missing_model_download import ModelDownload, missing_model
from agent_kernel.notebook.magic.python_commands import PythonCommands
from agent_kernel.notebook.magic.turn_commands import TurnCommands
from agent_kernel.notebook.server_client import ServerClient, server_of_this_kernel
from agent_kernel.notebook.turn.answer_format import FORMS, AnswerFormat, extract_code
from agent_kernel.notebook.turn.background_turns import BackgroundTurns, CellPublisher
from agent_kernel.notebook.turn.cell_options import CellOptions, parse_options, usage
from agent_kernel.notebook.turn.cell_turn import CellTurn, CellTurnContext
from agent_kernel.notebook.turn.client_tool_registry import ClientTools
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.execution_target import run_request
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.request_builder import RequestBuilder
from agent_kernel.notebook.turn.result_assignment import ResultAssignment
from agent_kernel.notebook.turn.session_permissions import LIVE, Consent
from agent_kernel.notebook.turn.stored_answers import StoredAnswers
from agent_kernel.notebook.turn.user_functions import UserFunctions

NOT_BEGUN = "(new)"
"""Placeholder for a session that does not exist yet. No consent is stored for it."""
BRANCH_ELSEWHERE = "--branch names a branch of this notebook's conversation; it does not combine with -s or --new."
CODE_STAYS = "A background turn cannot propose a cell; the code is in the answer."
PLAIN_CELL = CellOptions()
QUESTION = re.compile(r"\s*%agent\s+\S+\s.*\?\s*$")
"""Matches an ``%agent`` line of at least two words that ends with a question mark."""


@dataclass(frozen=True, slots=True)
class CellPrompt:
    """The prompt of a turn, with the options and the id of its cell. ``task`` is set if the turn is about another cell
    that ran, ``result`` if a variable gets the answer."""

    options: CellOptions
    text: str
    cell: str
    task: CellTask | None
    result: ResultAssignment | None

    @property
    def form(self) -> AnswerFormat:
        return self.result.format(self.options.form) if self.result else FORMS[self.options.form]


@magics_class
class AgentMagics(Magics):
    """The magics of one kernel and their state: consents, drafts, background turns and the connection to the server.

    ``in_turn`` is true while a turn of a cell runs. ``has_prompt_cells``: the kernel runs prompt cells, and if it has
    no server, its first turn starts one, as ``%agent start`` does."""

    def __init__(self, shell: Any, server: ServerClient | None) -> None:
        super().__init__(shell)
        self._shell = shell
        self._code = LiveCode(shell)
        self._parts = self._build_parts()
        self.executions, self.functions = self._parts.executions, self._parts.functions
        self._drafts = self._parts.drafts
        self.in_turn = False
        self.has_prompt_cells = False
        self._cells = CellIdentity(shell)
        self._background = BackgroundTurns()
        self._requests = RequestBuilder(self._parts, self._session_id)
        self._context = CommandContext(
            shell, self._parts.person, self._parts.consent, server, EmbeddedServer(shell), self._show_stored
        )
        self._commands = Commands(
            self._context,
            self._requests,
            PythonCommands(self._context, self._requests.target, self._parts.applier),
            TurnCommands(self._context, self._parts, self._cells, self._background.waiting, self._one_turn),
            running=lambda: self._background.running,
        )
        self._stored = StoredAnswers(shell)
        self.completion = MagicCompleter(lambda: self.server, lambda: user_variables(shell))

    def _build_parts(self) -> KernelParts:
        shell, person, drafts = self._shell, Person(self._shell), Drafts(self._shell)
        executions, functions, variables = ExecutionHistory(shell), UserFunctions(shell.user_ns), VariableTracker(shell)
        tools = ClientTools(shell, self._code, executions, functions)
        applier = DraftApplier(shell, drafts, person, self._code, variables, self._live_is_denied)
        return KernelParts(shell, person, Consent(), executions, functions, tools, variables, drafts, applier)

    @line_magic("agent")  # type: ignore[arg-type]  # IPython annotates the decorator without a name
    def command(self, line: str) -> None:
        """Run an %agent command: status | sessions | search WORDS | use ID | new | branches | undo | stop | model |
        in | keep | help"""
        with _one_line(interrupted="stopped; nothing changed."):
            self._commands.run(line)

    @line_magic("agent_draft")  # type: ignore[arg-type]
    def draft(self, line: str) -> None:
        """Run code in a draft for a turn that was not started by a cell. The server sends this line; users do not
        type it."""
        run_request(self._shell, self._drafts, line)

    def unfit_for_drafts(self) -> str:
        """Return why this kernel cannot fork a draft, or "" if it can; the server calls this.

        The first draft may be forked here. IPython's display hook must be in place then, so that this draft displays
        values as a draft that is forked while a cell runs."""
        with self._shell.display_trap:
            return self._drafts.unfit()

    @cell_magic("agent")  # type: ignore[arg-type]
    def turn(self, line: str, cell: str) -> None:
        """Run one turn of this notebook's conversation: %%agent [options] [prompt]. %%agent --help lists the
        options."""
        with _one_line():
            request = parse_options(line)
            if request.help:
                self._shell.display_pub.publish({"text/plain": usage()})
                return
            prompt = "\n".join(part for part in (request.words, cell.strip("\n")) if part.strip())
            if not prompt.strip():
                raise AgentError(
                    f"the prompt is missing. Write it {'behind >' if self.has_prompt_cells else 'below %%agent'}."
                )
            self._one_turn(request, prompt, self._cells.id_of(f"{line}\n{cell}"))

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Context manager that refuses a turn inside another turn, because each would wait for the other one to end."""
        if self.in_turn:
            raise AgentError("an agent cell cannot be run from inside an agent cell. Run it in a cell of its own.")
        self.in_turn = True
        try:
            yield
        finally:
            self.in_turn = False

    def _one_turn(self, options: CellOptions, text: str, cell: str, task: CellTask | None = None) -> None:
        """Run one turn for the cell that is being executed. In a mode that asks no model, show the cell's stored answer
        instead."""
        with self._one_at_a_time():
            result = ResultAssignment.of(options, self._shell.user_ns)
            if self._stored.is_on:
                screen = screen_for(self._shell)
                answer = self._stored.show(text, cell, screen)
                if result is not None and answer is not None:
                    result.set(self._shell, *result.find_value(answer, None, lambda: None), screen)
                return
            self._run_turn(CellPrompt(options, text, cell, task, result))

    @property
    def server(self) -> ServerClient | None:
        """The server that started this kernel, or that this kernel started."""
        return self._context.known_server

    def close(self) -> None:
        self._requests.run_all.close()
        self.executions.close()
        self._drafts.close()
        self._code.close()
        self._context.embedded.close()

    def _run_turn(self, prompt: CellPrompt) -> None:
        """Run the turn of a cell. If its model is missing, offer the download and try once more."""
        if self.has_prompt_cells and self.server is None:
            self._commands.start("")
        server, options = self._context.server, prompt.options
        if options.branch and (options.session or options.new):
            raise AgentError(BRANCH_ELSEWHERE)
        publisher = CellPublisher(self._shell) if options.background else None
        session = options.session or (NOT_BEGUN if options.new else "")
        notes = prompt.task.notes if prompt.task else ()
        body = self._requests.body(options, prompt.text, prompt.cell, session, notes, result=prompt.result)
        if options.branch:  # The branch is switched last, because the switch stays even if the turn fails.
            self._commands.conversation.go_on(options.branch)
        if session == NOT_BEGUN:
            body["session"] = self._context.begin_session()
        if publisher is not None:
            self._run_in_background(prompt, body, publisher)
            return
        end = self._follow_turn(prompt, body)
        error = from_json(end.error) if end.error else None
        offer = missing_model(error) if error else None
        if offer and ModelDownload(server, self._shell, offer).offer_download(self._parts.person):
            body |= {"rerun": "append"}  # the failed first try is not a version of the answer
            end = self._follow_turn(prompt, body)
            error = from_json(end.error) if end.error else None
        if error is not None:
            raise error
        if end.state != "committed":
            raise AgentError(f"the turn was {end.state}: {end.reason}." if end.reason else f"the turn was {end.state}.")

    def _follow_turn(self, prompt: CellPrompt, body: Mapping[str, Any]) -> TurnFinished:
        """Start the turn and display it to its end. Then set the variable, offer the changes of the draft, or propose a
        cell, as the options of the cell say."""
        result, task, form = prompt.result, prompt.task, prompt.options.form
        screen = screen_for(self._shell, prompt.form.render)
        started = self._start_turn(body, screen)
        around = self._around(screen, prompt.options, returns_value=bool(result and result.type))
        turn = CellTurn(around, _summary(started, prompt.cell))
        with self._drafts.reviewing(task.review if task else NO_REVIEW):
            end = turn.follow()
        if end.state != "committed":
            return end
        if result is not None:
            self._set_result(result, started["turn"], turn, screen)
        if started["stored"]:
            return end
        if form == "fix" and task:
            self._propose_tried(started["turn"], screen, task)
            return end
        self._parts.applier.after(started["turn"], prompt.text, screen, result.name if result else "")
        if form == "code":
            self._propose(extract_code(turn.answer), screen, task)
        return end

    def _set_result(self, result: ResultAssignment, turn: str, followed: CellTurn, screen: Screen) -> None:
        """Set the variable of the turn. The next draft is forked afterwards, so that its code sees the variable."""
        value, how = result.find_value(
            followed.answer, followed.value, lambda: self._parts.applier.value(turn, result.name, screen)
        )
        result.set(self._shell, value, how, screen)
        self._drafts.drop()

    def _start_turn(self, body: Mapping[str, Any], screen: Screen) -> Mapping[str, Any]:
        """Start the turn. Under Run All, tell the user why a cell with a stored answer is asked again."""
        started: Mapping[str, Any] = self._context.server.call("POST", "turns", body)
        self._context.last_turn = started["turn"]
        if again := started.get("asked_again"):
            screen.line(self._requests.why_again(str(again["reason"]), str(again["turn"])))
        return started

    def _run_in_background(self, prompt: CellPrompt, body: Mapping[str, Any], publisher: CellPublisher) -> None:
        screen = CellScreen(publisher, FORMS[prompt.options.form].render)
        started = self._start_turn(body, screen)
        if prompt.options.form == "code":
            screen.line(CODE_STAYS)
        around = self._around(screen, prompt.options, waiting=self._background.waiting)
        self._background.follow(started["turn"], CellTurn(around, _summary(started, prompt.cell)), screen)

    def _propose_tried(self, turn: str, screen: Screen, task: CellTask) -> None:
        """Propose the last program that the turn ran in the draft. If the request has a reference program, the two must
        do the same."""
        code = next((call.code for call in reversed(self._drafts.done) if call.turn == turn), "")
        if not code or (task.review.reference and not self._drafts.has_equal_outcome(task.source, code)):
            screen.line(task.none)
            return
        screen.show(diff_bundle(task.source, code), {}, {}, False)
        self._propose(code, screen, task, tried=True)

    def _propose(self, code: str, screen: Screen, task: CellTask | None, *, tried: bool = False) -> None:
        """Insert a cell with the code below this one. In a run without a user no cell is inserted, and only the answer
        shows the code. The code is not proposed if it equals the cell that it would replace, or if the request refuses
        it."""
        refused = task.review.refuse(code) if task and code else ""
        if not code:
            screen.line("There is no code in this answer, so there is no cell to propose.")
        elif task and task.source and is_same_code(self._shell, code, task.source):
            screen.line(SAME)
        elif refused:
            screen.line(f"The proposed cell is not proposed: {refused.partition(': ')[2]}")
        elif self._parts.person.is_there:
            if task and task.source and not tried:
                screen.line(NOT_TRIED)
            self._shell.set_next_input(code, replace=False)

    def _around(self, screen: Screen, options: CellOptions = PLAIN_CELL, **more: Any) -> CellTurnContext:
        return CellTurnContext(
            self._context.server,
            screen,
            self._parts,
            self._requests.list_allowed_kinds(options),
            options.permission == "ask",
            **more,
        )

    def _show_stored(self, version: Mapping[str, Any]) -> None:
        """Display a stored answer in place of a new turn."""
        summary = TurnSummary(
            version["turn"], version["session"], stored=version["answered"], version=_version(version)
        )
        CellTurn(self._around(screen_for(self._shell)), summary).follow()

    def _live_is_denied(self) -> str:
        """Return why the code of a draft may not run in the kernel now, or "" if it may."""
        if self._parts.consent and self._parts.consent.refuses(self._session_id(), LIVE):
            return "you have denied live code in this session, and %agent allow live takes that back"
        try:
            rule = self._context.server.call("GET", "agent/permissions")["policy"].get(LIVE, {})
        except AgentKernelError as error:
            return str(error)
        return f"live code is denied here, by {rule['because']}" if rule.get("permission") == "deny" else ""

    def _session_id(self) -> str:
        """Return the id of this notebook's session, or "" if it has none yet."""
        session = self._context.find_session()
        return str(session["id"]) if session else ""


def _summary(started: Mapping[str, Any], cell: str) -> TurnSummary:
    """Describe a turn that has just started, or the stored turn that is displayed instead of a new one."""
    summary = TurnSummary(started["turn"], started["session"], cell=cell, private=started["private"])
    if started["stored"]:
        summary.stored, summary.version = started["answered"], _version(started["version"])
    return summary


def _version(version: Mapping[str, Any]) -> AnswerVersion:
    return AnswerVersion(version["branch"], version["number"], version["count"], version["replaces"])


@contextlib.contextmanager
def _one_line(interrupted: str = "stopped.") -> Iterator[None]:
    """Display errors of this package as one line, without a traceback. ``interrupted`` is the line after Ctrl-C."""
    try:
        yield
    except AgentKernelError as error:
        raise to_short_error(error) from None
    except KeyboardInterrupt as stop:
        if isinstance(stop, AgentInterrupted):
            raise
        raise AgentInterrupted(interrupted) from None


def with_body(lines: list[str]) -> list[str]:
    """Give a one-line ``%%agent PROMPT`` cell an empty body: IPython refuses a cell magic without one."""
    return [*lines, "\n"] if len(lines) == 1 and lines[0].startswith("%%agent") else lines


def protect_questions(lines: list[str]) -> list[str]:
    """Add a space behind ``%agent`` lines that end with a question mark. IPython would otherwise show the documentation
    of the last word. ``%agent?`` and ``%agent NAME?`` still do that."""
    if lines and lines[0].startswith("%%"):
        return lines
    return [f"{line.rstrip()} \n" if QUESTION.match(line) else line for line in lines]


CLEANUPS = (with_body, protect_questions)


def load(shell: Any) -> None:
    """Register both magics and their completion. Loading twice has no further effect."""
    if isinstance(shell.magics_manager.registry.get("AgentMagics"), AgentMagics):
        return
    magics = AgentMagics(shell, server_of_this_kernel())
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(magics.completion.match)
    shell.input_transformers_cleanup.extend(CLEANUPS)


def unload(shell: Any) -> None:
    magics = shell.magics_manager.registry.pop("AgentMagics", None)
    if magics is None:
        return
    magics.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    shell.Completer.custom_matchers.remove(magics.completion.match)
    for cleanup in CLEANUPS:
        shell.input_transformers_cleanup.remove(cleanup)
