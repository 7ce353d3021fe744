"""Runs the turns of the cells of one kernel, and holds the commands. Loaded at the first turn or command, because it
needs most of this package and a kernel that only loads the magics needs none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from agent_kernel.core.errors import AgentKernelError, from_json
from agent_kernel.core.events import TurnFinished
from agent_kernel.core.wire.agent_cells import is_agent_cell
from agent_kernel.core.wire.turn_end import describe_end
from agent_kernel.notebook.display.render import AnswerVersion, TurnSummary
from agent_kernel.notebook.display.screen import CellScreen, Screen, screen_for
from agent_kernel.notebook.draft.draft import NO_REVIEW
from agent_kernel.notebook.kernel.cell_identity import CellIdentity
from agent_kernel.notebook.kernel.inspection import user_variables
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_context import CommandContext
from agent_kernel.notebook.magic.commands import HELP, Commands
from agent_kernel.notebook.magic.fix_explain_improve import NOT_TRIED, SAME, CellTask, diff_bundle, is_same_code
from agent_kernel.notebook.magic.missing_model_download import ModelDownload, missing_model
from agent_kernel.notebook.magic.python_commands import PythonCommands
from agent_kernel.notebook.magic.turn_commands import RunTurn, TurnCommands
from agent_kernel.notebook.server_client import ServerClient, route
from agent_kernel.notebook.turn.answer_format import FORMS, AnswerFormat, extract_code
from agent_kernel.notebook.turn.background_turns import BackgroundTurns, CellPublisher
from agent_kernel.notebook.turn.cell_options import BY_FLAG, TO_VARIABLE, CellOptions
from agent_kernel.notebook.turn.cell_turn import CellTurn, CellTurnContext
from agent_kernel.notebook.turn.execution_target import CHOICES
from agent_kernel.notebook.turn.file_previews import complete_file
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.request_builder import RequestBuilder
from agent_kernel.notebook.turn.result_assignment import ResultAssignment
from agent_kernel.notebook.turn.result_type import PLAIN
from agent_kernel.notebook.turn.session_permissions import KINDS
from agent_kernel.notebook.turn.stored_answers import StoredAnswers

NOT_BEGUN = "(new)"
"""Stands for the id of a session that does not exist yet. The kernel stores no permissions for it."""
BRANCH_ELSEWHERE = "--branch names a branch of this notebook's conversation; it does not combine with -s or --new."
CODE_STAYS = "A background turn cannot propose a cell; the code is in the answer."
PLAIN_CELL = CellOptions()
MAGICS = ("%agent", "%%agent")
ASK_S = 0.5
KEEP_S = 10.0
WORDS: Mapping[str, tuple[str, ...]] = {
    "private": ("off",),
    "fork": ("--into", "--use"),
    **dict.fromkeys(("sessions", "branches", "versions", "tags", "note", "permissions"), ("--json",)),
    "search": ("--here", "--all", "--json"),
    "allow": (*KINDS, "ask"),
    "deny": tuple(KINDS),
    **dict.fromkeys(("where", "in"), (*CHOICES, "default")),
    "rebuild": ("--yes",),
    "trust": ("remove",),
    "stop": ("server",),
    "replay": ("--verify", "--live", "--turn", "--json"),
    "freeze": ("--in-place", "--yes"),
    "context": ("--json",),
    **dict.fromkeys(("fix", "explain", "improve"), tuple(BY_FLAG)),
    "ask": (*BY_FLAG, TO_VARIABLE),
}
"""Fixed completions after a command. For commands that are not listed here, completions come from the server."""


class CellPrompt(NamedTuple):
    """The prompt of a turn, with the options and the id of its cell. ``task`` is set if the turn is about an executed
    cell (``%agent fix``, for example). ``result`` is set if a variable gets the answer."""

    options: CellOptions
    text: str
    cell: str
    task: CellTask | None
    result: ResultAssignment | None

    @property
    def form(self) -> AnswerFormat:
        return self.result.format(self.options.form) if self.result else FORMS[self.options.form]


class CellTurns:
    """The turns of one kernel. ``run_turn`` runs the turn of an ``%agent`` command in the current cell."""

    def __init__(
        self,
        parts: KernelParts,
        context: CommandContext,
        requests: RequestBuilder,
        cells: CellIdentity,
        run_turn: RunTurn,
    ) -> None:
        shell = parts.shell
        self._shell = shell
        self._parts = parts
        self._context = context
        self._requests = requests
        self._drafts = parts.drafts
        self._background = BackgroundTurns()
        self._stored = StoredAnswers(shell)
        self.commands = Commands(
            context,
            requests,
            PythonCommands(context, requests.target, parts.applier),
            TurnCommands(context, parts, cells, self._background.waiting, run_turn),
            running=lambda: self._background.running,
        )
        self.completion = MagicCompleter(lambda: context.known_server, lambda: user_variables(shell))

    def run(
        self, options: CellOptions, text: str, cell: str, task: CellTask | None = None, *, starts_server: bool = False
    ) -> None:
        """Run one turn for the cell that is being executed. In a mode that asks no model, show the cell's stored answer
        instead. With ``starts_server``, a kernel without a server starts one, as ``%agent start`` does."""
        result = ResultAssignment.of(options, self._shell.user_ns)
        if self._stored.is_on:
            screen = screen_for(self._shell)
            answer = self._stored.show(text, cell, screen)
            if result is not None and answer is not None:
                result.set(self._shell, *result.find_value(answer, None, lambda: None), screen)
            return
        if starts_server and self._context.known_server is None:
            self.commands.start("")
        self._run_turn(CellPrompt(options, text, cell, task, result))

    def show_stored(self, version: Mapping[str, Any]) -> None:
        """Display a stored answer in place of a new turn."""
        summary = TurnSummary(
            version["turn"], version["session"], stored=version["answered"], version=_version(version)
        )
        CellTurn(self._around(screen_for(self._shell)), summary).follow()

    def _run_turn(self, prompt: CellPrompt) -> None:
        """Run the turn of a cell. If its model is not on this machine, offer the download and start the turn
        once more."""
        server, options = self._context.server, prompt.options
        if options.branch and (options.session or options.new):
            raise AgentError(BRANCH_ELSEWHERE)
        publisher = CellPublisher(self._shell) if options.background else None
        session = options.session or (NOT_BEGUN if options.new else "")
        notes = prompt.task.notes if prompt.task else ()
        body = self._requests.body(options, prompt.text, prompt.cell, session, notes, result=prompt.result)
        if options.branch:  # The branch is switched last, because the switch stays even if the turn fails.
            self.commands.conversation.go_on(options.branch)
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
            raise AgentError(describe_end(end.state, end.reason))

    def _follow_turn(self, prompt: CellPrompt, body: Mapping[str, Any]) -> TurnFinished:
        """Start the turn and display it to its end. After that, set the variable, offer to apply the changes of the
        draft, or propose a cell, as the options of the cell require."""
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
        self._parts.applier.offer_changes(started["turn"], prompt.text, screen, result.name if result else "")
        if form == "code":
            self._propose(extract_code(turn.answer), screen, task)
        return end

    def _set_result(self, result: ResultAssignment, turn: str, followed: CellTurn, screen: Screen) -> None:
        """Set the variable of the turn. Discards the current draft, so that the next draft is forked with the variable
        in it."""
        value, how = result.find_value(
            followed.answer, followed.value, lambda: self._parts.applier.compute_value(turn, result.name, screen)
        )
        result.set(self._shell, value, how, screen)
        self._drafts.drop()

    def _start_turn(self, body: Mapping[str, Any], screen: Screen) -> Mapping[str, Any]:
        """Start the turn. If Run All executes a cell that has a stored answer and the model is asked anyway, tell the
        user why."""
        started: Mapping[str, Any] = self._context.server.call("POST", "turns", body)
        self._context.last_turn = started["turn"]
        if again := started.get("asked_again"):
            screen.line(self._requests.explain_repetition(str(again["reason"]), str(again["turn"])))
        return started

    def _run_in_background(self, prompt: CellPrompt, body: Mapping[str, Any], publisher: CellPublisher) -> None:
        screen = CellScreen(publisher, FORMS[prompt.options.form].render)
        started = self._start_turn(body, screen)
        if prompt.options.form == "code":
            screen.line(CODE_STAYS)
        around = self._around(screen, prompt.options, waiting=self._background.waiting)
        self._background.follow(started["turn"], CellTurn(around, _summary(started, prompt.cell)), screen)

    def _propose_tried(self, turn: str, screen: Screen, task: CellTask) -> None:
        """Propose the last program that the turn ran in the draft. If the request's review has a reference program, the
        program is proposed only if its outcome equals that of the cell that it would replace."""
        code = next((call.code for call in reversed(self._drafts.done) if call.turn == turn), "")
        if not code or (task.review.reference and not self._drafts.has_equal_outcome(task.source, code)):
            screen.line(task.none)
            return
        code = code.rstrip()  # a program ends with a line break, a cell does not
        screen.show(diff_bundle(task.source, code), {}, {}, False)
        self._propose(code, screen, task, tried=True)

    def _propose(self, code: str, screen: Screen, task: CellTask | None, *, tried: bool = False) -> None:
        """Insert a cell with the code below this one. If no user can be asked, as under nbconvert, no cell is inserted,
        and only the answer shows the code. The code is not proposed if it equals the cell that it would replace, or if
        the review of the request refuses it."""
        refused = task.review.refuse(code) if task and code else ""
        if not code:
            screen.line("There is no code in this answer, so there is no cell to propose.")
        elif task and task.source and is_same_code(self._shell, code, task.source):
            screen.line(SAME)
        elif refused:
            screen.line(f"The cell that the model wrote is not proposed: {refused.partition(': ')[2]}")
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


def _summary(started: Mapping[str, Any], cell: str) -> TurnSummary:
    """Describe a turn that has just started, or the stored turn that is displayed instead of a new one."""
    summary = TurnSummary(started["turn"], started["session"], cell=cell, private=started["private"])
    if started["stored"]:
        summary.stored, summary.version = started["answered"], _version(started["version"])
    return summary


def _version(version: Mapping[str, Any]) -> AnswerVersion:
    return AnswerVersion(version["branch"], version["number"], version["count"], version["replaces"])


# Completes ``%agent`` and ``%%agent`` lines on Tab: commands, options, sessions, branches, variables and models. In
# prompts, completes the names of variables and files.


class MagicCompleter:
    """Completes lines of the two magics, and in the prompts of agent cells variables after ``{`` and files after
    ``@``. Returns nothing when the server does not answer within ASK_S seconds. Answers are cached for KEEP_S
    seconds."""

    def __init__(self, server: Callable[[], ServerClient | None], names: Callable[[], Iterable[str]]) -> None:
        self._server = server
        self._names = names
        self._cache: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._completers: dict[str, Callable[[], list[str]]] = {
            "use": self._sessions,
            "delete": self._sessions,
            "switch": self._branches,
            "drop": self._branches,
            "take": self._variables,
            "model": lambda: ["pull", "unload", "reset", *self._models(), *self._engines()],
        }

    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        before_token = context.text_until_cursor.removesuffix(context.token)
        if before_token.endswith(("{", "@")) and is_agent_cell(context.full_text):
            names = complete_file(context.token) if before_token.endswith("@") else self._names()
            completions = [SimpleCompletion(name) for name in names if name.startswith(context.token)]
            return {"completions": completions, "suppress": True}
        words = context.text_until_cursor.split()
        if not words or words[0] not in MAGICS or (len(words) == 1 and context.token):
            return {"completions": []}
        before = words[1:-1] if context.token else words[1:]
        candidates = self._option(before) if words[0] == "%%agent" else self._command(before)
        matches = [SimpleCompletion(text) for text in candidates if text.startswith(context.token)]
        return {"completions": matches, "suppress": bool(matches)}

    def _option(self, before: list[str]) -> list[str]:
        if TO_VARIABLE in before[-3:]:
            return [*PLAIN, "DataFrame"] if before[-1].endswith(":") else []
        option = BY_FLAG.get(before[-1]) if before else None
        if option is not None and option.constant is None:
            completers: dict[str, Callable[[], list[str]]] = {
                "session": self._sessions,
                "branch": self._branches,
                "model": lambda: self._models() + self._engines(),
                "page": lambda: ["above", "none"],
            }
            return completers[option.sets]() if option.sets in completers else list(option.choices)
        return [*BY_FLAG, TO_VARIABLE]

    def _command(self, before: list[str]) -> list[str]:
        if not before:
            return list(HELP)
        if before == ["model", "pull"]:
            return self._models()
        if len(before) > 1:
            return []
        completer = self._completers.get(before[0])
        return completer() if completer else list(WORDS.get(before[0], ()))

    def _sessions(self) -> list[str]:
        return self._names_from("sessions", "sessions", "id")

    def _branches(self) -> list[str]:
        return self._names_of_session("branches")

    def _variables(self) -> list[str]:
        return self._names_of_session("variables")

    def _names_of_session(self, kind: str) -> list[str]:
        session = self._answer("binding").get("session")
        return self._names_from(route("sessions", session["id"], kind), kind, "name") if session else []

    def _models(self) -> list[str]:
        return self._names_from("models", "models", "name")

    def _engines(self) -> list[str]:
        return self._names_from("models", "engines", "name")

    def _names_from(self, route: str, kind: str, key: str) -> list[str]:
        return [str(entry[key]) for entry in self._answer(route).get(kind, ())]

    def _answer(self, route: str) -> Mapping[str, Any]:
        at, answer = self._cache.get(route, (0.0, {}))
        server = self._server()
        if server is None or (at and time.monotonic() - at < KEEP_S):
            return answer
        try:
            answer = server.call("GET", route, timeout=ASK_S)
        except AgentKernelError:
            return answer
        self._cache[route] = time.monotonic(), answer
        return answer
