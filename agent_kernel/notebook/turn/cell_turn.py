"""One turn as its cell lives through it: events shown, code run, the person asked, an interrupt passed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
from agent_kernel.notebook.display.file_bundle import files_bundle
from agent_kernel.notebook.display.render import AnswerVersion, Card, TurnSummary, moment
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentInterrupted
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.server_client import ServerClient, quoted
from agent_kernel.notebook.turn.approval_prompt import ApprovalPrompt
from agent_kernel.notebook.turn.client_calls import Running
from agent_kernel.notebook.turn.client_tools import Abilities
from agent_kernel.notebook.turn.event_stream import FollowedStream
from agent_kernel.notebook.turn.pending_approvals import PendingApprovals
from agent_kernel.notebook.turn.session_permissions import Consent

STOP_S = 0.4
"""An interrupted cell waits no longer than this for the server to tell how the turn ended."""
WORDS = {
    "success": "done",
    "error": "failed",
    "denied": "not run",
    "timeout": "out of time",
    "interrupted": "stopped",
}
STORED = "Stored answer of {when}: nothing changed up to this cell, so no model was asked. %%agent --fresh asks it."


@dataclass(frozen=True, slots=True)
class CellTurnContext:
    """What a cell brings to its turn. ``allowed``: kinds that need no question in this turn alone; ``ask``: remembered
    permissions do not count in this turn. ``waiting`` keeps what is asked where no cell can ask: in the background."""

    server: ServerClient
    screen: Screen
    person: Person
    consent: Consent
    abilities: Abilities
    touched: VariableTracker
    keep: DraftApplier
    allowed: frozenset[str] = frozenset()
    ask: bool = False
    waiting: PendingApprovals | None = None


class CellTurn:
    """Follows ``summary.turn`` to its end."""

    def __init__(self, around: CellTurnContext, summary: TurnSummary) -> None:
        self._around = around
        self._screen = around.screen
        self._summary = summary
        self._running = Running(around.server, around.screen, around.abilities, around.touched, around.keep)
        self._cards: dict[str, Card] = {}
        self._mine: set[str] = set()
        self._files: list[Mapping[str, Any]] = []
        self._words = 0
        self._answer: list[str] = []
        self._end: TurnFinished | None = None

    @property
    def answer(self) -> str:
        """What was said after the last call."""
        return "".join(self._answer)

    @property
    def calls(self) -> set[str]:
        return set(self._cards)

    def follow(self) -> TurnFinished:
        """Raises AgentInterrupted when the person stops it, AgentKernelError when the turn can not be followed."""
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
        """What a turn that has ended left, from its events: nobody is asked, nothing runs."""
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
            case ApprovalResolved(approval, call):
                self._resolved(approval, call)
            case FileProduced(file=file):
                self._files.append(file)
            case TurnFinished():
                self._show_files()
                self._end = body
            case _:
                self._tell(body)

    def _tell(self, body: EventBody) -> None:
        """What is no part of the answer: what is waited for, and what a person should know."""
        match body:
            case TurnStarted(model, local, where, host):
                self._summary.model, self._summary.local, self._summary.where = model, local, where
                self._summary.host = host
                if self._summary.stored:
                    return
                self._screen.status(f"Waiting for {model}{'' if local else f' at {host}'} ...")
            case TurnVersion(branch, number, count, replaces, kept_on, later):
                self._summary.version = AnswerVersion(branch, number, count, replaces, kept_on, later)
                if told := self._summary.version.left_behind:
                    self._screen.line(told)
            case Queued(position, reason):
                self._screen.status(f"Waiting: {reason} (place {position} in the queue) ...")
            case ModelLoading(model, stage, fraction):
                done = f" {fraction:.0%}" if fraction is not None else ""
                self._screen.status(f"{model}: {stage}{done} ...")
            case StateLost(reason):
                self._screen.line(reason)
            case AnswerChecked() if body.told:
                self._screen.line(body.told)
            case Notice(level, text):
                self._screen.line(text if level == "info" else f"{level.capitalize()}: {text}")

    def _show_call(self, body: CallStarted | CallOutput | CallFinished | CallOffered) -> None:
        match body:
            case CallStarted(call, name, arguments, where):
                self._answer.clear()
                card = Card(call, name, where, self._shown(name, where, arguments))
                self._cards[call] = card
                self._screen.card(card)
            case CallOutput(call, text) if call not in self._mine:
                self._cards[call].add(text)
                self._screen.card(self._cards[call])
            case CallOffered(call, name, arguments):
                self._run(call, name, arguments)
            case CallFinished():
                self._finished(body)

    def _shown(self, name: str, where: str, arguments: Mapping[str, Any]) -> str:
        code = arguments.get("code")
        if not isinstance(code, str):
            return "\n".join(f"{key} = {value!r}" for key, value in arguments.items())
        if (name, where) == ("python", "draft"):
            return self._around.keep.drafts.prepared(code)
        ability = self._around.abilities.find(name) if where == "live" else None
        return ability.code(arguments) if ability else code

    def _ask(self, asked: ApprovalRequired) -> None:
        """The card shows exactly what will run, also where the call only named it; the question stands under it."""
        if card := self._cards.get(asked.call):
            if "code" in asked.arguments:
                card.code = self._shown(asked.name, asked.target, asked.arguments)
            elif "diff" in asked.arguments:
                card.code = asked.code
        around = self._around
        asking = ApprovalPrompt(around.person, around.consent, self._summary.session, around.allowed, not around.ask)
        if around.waiting is None:
            decision, reason = asking.decision(asked, lambda state: self._state(asked.call, state))
        elif decided := asking.decided(asked):
            decision, reason = decided
        else:
            around.waiting.add(asked, self._summary.session, self._cards.get(asked.call))
            self._state(asked.call, "waiting for you: %agent approve, or the panel")
            return
        body = {"decision": decision, "message": reason, "shown": asked.shown}
        try:
            around.server.call("POST", f"agent/approvals/{quoted(asked.approval)}", body)
        except Conflict as elsewhere:
            self._screen.line(elsewhere.message)

    def _resolved(self, approval: str, call: str) -> None:
        if self._around.waiting is not None:
            self._around.waiting.resolved(approval)
        self._state(call, "running")

    def _run(self, call: str, name: str, arguments: Mapping[str, Any]) -> None:
        """What it said while it ran is in its card already; what it only tells comes with the end of the call."""
        if call not in self._cards:  # asked of a page before the first round
            return
        ability = self._around.abilities.find(name)
        if ability and not ability.looks:
            self._mine.add(call)
        outcome = self._running.run(self._summary.turn, self._cards[call], name, arguments)
        if outcome is None:
            self._mine.discard(call)
        elif outcome.interrupted:
            self._cards[call].close(WORDS["interrupted"], self._cards[call].seconds)
            raise KeyboardInterrupt

    def _finished(self, body: CallFinished) -> None:
        card = self._cards[body.call]
        if body.call not in self._mine and len(body.text) >= len(card.output):
            card.output = body.text  # the value and the error as well, which were not streamed
        took = None if self._summary.stored else body.seconds  # times are not stored
        card.close(WORDS.get(body.status, body.status), took)
        self._screen.card(card)
        for number, media in enumerate(body.media, 1):
            if media.get("data") and body.call not in self._mine:
                self._screen.image(media["mime"], media["data"], f"image {number} of {body.name}, {media['mime']}")
        self._show_files()

    def _show_files(self) -> None:
        """Those that came since the last time, in one output."""
        if self._files:
            bundle = files_bundle(self._files, self._around.server.url, self._summary.session)
            self._screen.show(bundle, {}, {}, False)
            self._files = []

    def _state(self, call: str, state: str) -> None:
        if card := self._cards.get(call):
            card.state = state
            self._screen.card(card)

    def _stop(self, events: FollowedStream) -> None:
        """Cancels the turn on the server and shows what still comes; the answer so far stays."""
        self._screen.flush(force=True)
        try:
            self._around.server.call(
                "POST", f"turns/{self._summary.turn}/cancel", {"reason": "stopped by the person"}, timeout=STOP_S
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
                card.close(WORDS["interrupted"], card.seconds)
                self._screen.card(card)
        if self._words and state in ("cancelled", "stopped", "failed", "lost"):
            self._screen.text(" *(cut short)*")
        self._summary.state = state
        if self._end is not None:
            self._summary.usage = self._end.usage
        self._screen.flush(force=True)
        self._screen.summary(self._summary)

    def _stopped_line(self) -> str:
        kept = "; the answer so far is kept" if self._words or self._cards else ""
        if self._end is not None and self._end.state == "committed":
            return "the turn was over already; everything is kept."
        return f"stopped{kept}."
