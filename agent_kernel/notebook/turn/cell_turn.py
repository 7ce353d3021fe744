"""Follows one turn in its cell: displays events, runs client calls, asks the user, and forwards an interrupt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agent_kernel.core.errors import AgentKernelError, Conflict
from agent_kernel.core.events import (
    AnswerChecked,
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallOffered,
    CallOutput,
    CallStarted,
    Event,
    EventBody,
    FileProduced,
    ModelLoading,
    Notice,
    Queued,
    ReasoningDelta,
    StateLost,
    TextDelta,
    TurnFinished,
    TurnStarted,
    TurnVersion,
)
from agent_kernel.core.messages import corrected_call
from agent_kernel.core.programs.program_outcome import TRIAL_TOOL
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.notebook.display.file_bundle import files_bundle
from agent_kernel.notebook.display.render import STATES, AnswerVersion, Card, TurnSummary, format_arguments, moment
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.one_line_errors import AgentInterrupted
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn.approval_prompt import ApprovalPrompt, post_decision
from agent_kernel.notebook.turn.client_calls import ClientCalls
from agent_kernel.notebook.turn.event_reader_thread import FollowedStream
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.pending_approvals import PendingApprovals

STOP_S = 0.4
"""Longest wait in seconds, after an interrupt, for the server to report how the turn ended."""
EDITED_ELSEWHERE = "waiting for you: change the code in the agent's panel and run it there"
STORED = "Stored answer of {when}: nothing changed up to this cell, so no model was asked. %%agent --fresh asks again."


class CellTurnContext(NamedTuple):
    """The context in which a cell runs a turn: its screen, and the calls that need no question to the user. ``allowed``
    are kinds of calls approved for this turn only; with ``ask``, permissions stored for the session do not count. With
    ``returns_value`` the turn records the value of its last program. ``waiting`` collects the approval requests of a
    background turn, for which no cell can ask the user."""

    server: ServerClient
    screen: Screen
    parts: KernelParts
    allowed: frozenset[str] = frozenset()
    ask: bool = False
    returns_value: bool = False
    waiting: PendingApprovals | None = None


class CellTurn:
    """Follows the turn that ``summary`` describes to its end and displays it."""

    def __init__(self, around: CellTurnContext, summary: TurnSummary) -> None:
        self._around = around
        self._screen = around.screen
        self._summary = summary
        self._calls = ClientCalls(around.server, around.screen, around.parts, around.returns_value)
        self.value: ProgramValue | None = None
        """The value of the last program of the turn, if the program ran in this kernel or its draft and
        ``returns_value`` is set."""
        self._cards: dict[str, Card] = {}
        self._mine: set[str] = set()
        self._files: list[Mapping[str, Any]] = []
        self._words = 0
        self._answer: list[str] = []
        self._end: TurnFinished | None = None

    @property
    def answer(self) -> str:
        """The text that the model wrote after its last tool call."""
        return "".join(self._answer)

    @property
    def calls(self) -> set[str]:
        return set(self._cards)

    def follow(self) -> TurnFinished:
        """Follow the turn to its end and return its last event. Raises AgentInterrupted when the user stops the turn,
        and AgentKernelError when it cannot be followed."""
        summary = self._summary
        if summary.stored:
            self._screen.line(STORED.format(when=moment(summary.stored)))
        with FollowedStream(
            self._around.server, summary.turn, stored=summary.session if summary.stored else ""
        ) as events:
            try:
                for event in events:
                    if event is None:
                        self._screen.flush()
                    else:
                        self._show(event)
            except KeyboardInterrupt:
                self._stop(events)
                raise AgentInterrupted(self._stopped_line()) from None
            except AgentKernelError:
                self._close("lost")
                raise
        assert self._end is not None
        self._close(self._end.state)
        return self._end

    def show(self, events: Iterable[Event]) -> None:
        """Display a finished turn from its events. Nobody is asked and no code runs."""
        for event in events:
            if not isinstance(event.body, ApprovalRequired | ApprovalResolved | CallOffered):
                self._show(event)
        self._close(self._end.state if self._end else "lost")

    def _show(self, event: Event) -> None:
        body = event.body
        match body:
            case TextDelta(text):
                self._words += len(text)
                self._answer.append(text)
                self._screen.text(text)
            case ReasoningDelta(text):
                self._screen.reasoning(text)
            case CallStarted() | CallOutput() | CallFinished() | CallOffered():
                self._show_call(body)
            case ApprovalRequired():
                self._ask(body)
            case ApprovalResolved():
                self._on_resolved(body)
            case FileProduced(file=file):
                self._files.append(file)
            case TurnFinished():
                self._show_files()
                self._end = body
            case _:
                self._tell(body)

    def _tell(self, body: EventBody) -> None:
        """Display events that are not part of the answer: waiting states and notices."""
        match body:
            case TurnStarted(model, local, where, host):
                self._summary.model, self._summary.local, self._summary.where = model, local, where
                self._summary.host = host
                self._show_waiting()
            case TurnVersion(branch, number, count, replaces, kept_on, later):
                self._summary.version = AnswerVersion(branch, number, count, replaces, kept_on, later)
                if notice := self._summary.version.left_behind:
                    self._screen.line(notice)
            case Queued(position, reason):
                self._screen.status(f"Waiting: {reason} (place {position} in the queue) ...")
            case ModelLoading(model, stage, fraction):
                done = f" {fraction:.0%}" if fraction is not None else ""
                self._screen.status(f"{model}: {stage}{done} ...")
            case StateLost(reason):
                self._screen.line(reason)
            case AnswerChecked() if body.summary_line:
                self._screen.line(body.summary_line)
            case Notice(level, text, details):
                self._screen.line(text if level == "info" else f"{level.capitalize()}: {text}", details)

    def _show_call(self, body: CallStarted | CallOutput | CallFinished | CallOffered) -> None:
        match body:
            case CallStarted(call, name, arguments, where):
                self._answer.clear()
                card = Card(call, name, where, self._displayed_code(name, where, arguments))
                card.corrects = self._cards.get(corrected_call(call))
                self._cards[call] = card
                self._screen.card(card)
            case CallOutput(call, text) if call not in self._mine:
                self._cards[call].add(text)
                self._screen.card(self._cards[call])
            case CallOffered(call, name, arguments):
                self._run(call, name, arguments)
            case CallFinished():
                self._on_finished(body)

    def _displayed_code(self, name: str, where: str, arguments: Mapping[str, Any]) -> str:
        code = arguments.get("code")
        if not isinstance(code, str):
            return format_arguments(arguments)
        if (name, where) == ("python", "draft"):
            return self._around.parts.drafts.prepare_code(code)
        tool = self._around.parts.tools.find(name) if where == "live" else None
        return tool.code(arguments) if tool else code

    def _ask(self, request: ApprovalRequired) -> None:
        """Decide an approval request. The card shows exactly the code that will run, even if the request contains only
        a reference to this code."""
        if card := self._cards.get(request.call):
            if "code" in request.arguments:
                card.code = self._displayed_code(request.name, request.target, request.arguments)
            elif "diff" in request.arguments:
                card.code = request.code
        around = self._around
        prompt = ApprovalPrompt(
            around.parts.person, around.parts.consent, self._summary.session, around.allowed, not around.ask
        )
        if around.waiting is None:
            decision, reason = prompt.decision(request, lambda state: self._state(request.call, state))
            if decision == "edit":
                self._state(request.call, EDITED_ELSEWHERE)
                return
        elif decided := prompt.find_decision(request):
            decision, reason = decided
        else:
            around.waiting.add(request, self._summary.session, self._cards.get(request.call))
            self._state(request.call, "waiting for you: %agent approve, or the panel")
            return
        try:
            post_decision(around.server, request, decision, reason)
        except Conflict as elsewhere:
            self._screen.line(elsewhere.message)

    def _on_resolved(self, resolved: ApprovalResolved) -> None:
        if self._around.waiting is not None:
            self._around.waiting.remove(resolved.approval)
        card = self._cards.get(resolved.call)
        if card and resolved.edited is not None:
            card.code = resolved.edited
        self._state(resolved.call, "running")

    def _run(self, call: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Run a tool call that the server asks this kernel to run, if the kernel has that tool. While it runs, its
        output is displayed at the call in the cell's output; the text of a call that only reads is displayed at its
        end."""
        if name == TRIAL_TOOL:
            self._calls.try_programs(self._summary.turn, call, arguments["programs"], arguments["names"])
            return
        if call not in self._cards:  # a request that a page of the notebook answers before the first round
            return
        tool = self._around.parts.tools.find(name)
        if tool and not tool.only_reads:
            self._mine.add(call)
        outcome = self._calls.run(self._summary.turn, self._cards[call], name, arguments)
        if tool is None or not tool.only_reads:
            self.value = outcome.value if outcome else None
        if outcome is None:
            self._mine.discard(call)
        elif outcome.interrupted:
            self._cards[call].close(STATES["interrupted"], self._cards[call].seconds)
            raise KeyboardInterrupt

    def _on_finished(self, body: CallFinished) -> None:
        card = self._cards[body.call]
        if body.call not in self._mine and len(body.text) >= len(card.output):
            card.output = body.text  # this text includes the value and the error, which are not streamed
        took = None if self._summary.stored else body.seconds  # stored turns have no times
        card.close(STATES.get(body.status, body.status), took)
        self._screen.card(card)
        for number, media in enumerate(body.media, 1):
            if media.get("data") and body.call not in self._mine:
                self._screen.image(media["mime"], media["data"], f"image {number} of {body.name}, {media['mime']}")
        self._show_files()
        self._show_waiting()

    def _show_waiting(self) -> None:
        """Display that the turn waits for its model, unless a call is open or the turn is a stored one."""
        summary = self._summary
        if summary.model and not summary.stored and not any(card.open for card in self._cards.values()):
            self._screen.status(f"Waiting for {summary.model}{'' if summary.local else f' at {summary.host}'} ...")

    def _show_files(self) -> None:
        """Display, as one output, the files that the turn has produced since this method was last called."""
        if self._files:
            bundle = files_bundle(self._files, self._around.server.url, self._summary.session)
            self._screen.show(bundle, {}, {}, False)
            self._files = []

    def _state(self, call: str, state: str) -> None:
        if card := self._cards.get(call):
            card.state = state
            self._screen.card(card)

    def _stop(self, events: FollowedStream) -> None:
        """Cancel the turn on the server and display the events that still arrive. The server keeps the part of the
        answer that was generated."""
        self._screen.flush(force=True)
        try:
            self._around.server.call(
                "POST", f"turns/{self._summary.turn}/cancel", {"reason": STOPPED_BY_USER}, timeout=STOP_S
            )
        except AgentKernelError:
            self._close("stopped")
            return
        for event in events.rest(STOP_S):
            if isinstance(event.body, TextDelta | CallFinished | TurnFinished):
                self._show(event)
        self._close(self._end.state if self._end else "stopped")

    def _close(self, state: str) -> None:
        for card in self._cards.values():
            if card.open:
                card.close(STATES["interrupted"], card.seconds)
                self._screen.card(card)
        if self._words and state in ("cancelled", "stopped", "failed", "lost"):
            self._screen.text(" *(cut short)*")
        self._summary.state = state
        if self._end is not None:
            self._summary.usage = self._end.usage
        self._screen.flush(force=True)
        self._screen.summary(self._summary)

    def _stopped_line(self) -> str:
        suffix = "; the answer so far is kept" if self._words or self._cards else ""
        if self._end is not None and self._end.state == "committed":
            return "the turn had already ended; everything is kept."
        return f"stopped{suffix}."
