"""Applies a draft to the kernel: runs the draft's code once more, in the kernel, after the user agreed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.notebook.display.render import STATES, WAITING, Card
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.draft.draft import DraftedCall, Drafts
from agent_kernel.notebook.kernel.capture import Show
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome, LiveCode
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.notebook.kernel.python_syntax import loop_names, to_plain_python
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.kernel.variable_summary import ONE_LETTER_WORDS

QUESTION = "Keep {names} in your kernel? The same code then runs there."
SET = "Set {name} in your kernel? The same code then runs there."
FOR_REAL = "A draft may not do this. Run it in your kernel for real?"
LATER = "In a draft only: {names}. %agent keep brings {them} into your kernel."
NOTHING_TO_KEEP = "there is nothing to keep: no draft has made or changed a variable since your kernel was last used."
FIGURES = frozenset({"fig", "ax", "axes", "axs"})
"""Conventional names for parts of a plot. The user is not asked to keep these variables, because the picture was
already displayed."""
NAME = r"[^\W\d]\w*"
QUOTED = re.compile(rf"(?<!\{{)\{{({NAME})\}}(?!\}})|(?<!`)`({NAME})`(?!`)")
"""Matches ``{x}`` and `x`."""
BOUND = re.compile(rf"(?<![\w./-])({NAME}(?:[ \t]*,[ \t]*{NAME})*)[ \t]*=(?!=)")
"""Matches ``x = ...`` and ``x, y = ...``."""
END = r"(?=[ \t]*(?:$|[,.;:!?)\n]|and\b|or\b))"
"""Matches the end of a list of names, so that ``as monthly and plot rain`` names only ``monthly``."""
CALLED = re.compile(
    r"(?<!such )(?<!same )(?<!well )\b(?i:as|called|named|into|call it|name it)\s+"
    rf"(?i:(?:(?:a|the) )?(?:new )?variable )?[\"'“‘]?(?P<first>{NAME})(?![\w(]|[./\\-]\w)"
    rf"(?P<more>(?:(?:\s*,\s*{NAME})*\s*,?\s+and\s+{NAME}{END})?)",
    re.MULTILINE,
)
"""Matches ``as x``, ``called x``, ``named x``, ``into x and y``; not ``as x.csv``."""
OF_KIND = re.compile(
    r"\b(?i:data\s?frame|table|list|dict(?:ionary)?|array|series|set|variable|function)\s+"
    r"(?!(?i:an?|all|and|are|as|at|by|called|each|for|from|has|have|i|in|into|is|it|named|of|on|or|that|the|there|this|to"
    rf"|where|which|with)\b)({NAME})(?![\w(]|[./\\-]\w)"
)
"""Matches ``a DataFrame x`` and ``the list x``. Other ordinary words match too, but programs rarely create variables of
these names."""
TO_TABLE = re.compile(rf"\b(?i:to)\s+({NAME})(?![\w(]|[./\\-]\w)")
"""Matches ``add a column to df``. A match is used only if the variable already exists."""
ARTICLE = re.compile(rf"[aAI]{END}")
"""Matches ``a``, ``A`` and ``I``. They count as words of the sentence and not as names, except at the end of a list of
names (``as a and b``)."""


@dataclass(frozen=True, slots=True)
class DraftApplier:
    """Offers the changes of drafts to the user and applies them. ``denied`` returns why code of the model may not run
    in this kernel now, or "" if it may; the user's consent does not override it."""

    shell: Any
    drafts: Drafts
    person: Person
    code: LiveCode
    touched: VariableTracker
    denied: Callable[[], str]

    def offer_changes(self, turn: str, prompt: str, screen: Screen, result: str = "") -> None:
        """After a turn, ask the user once whether to keep the new or changed variables that ``prompt`` names (see
        ``marked_names``).

        The other variables are listed in one line. Loop variables, parts of figures, and ``result``, the variable that
        the turn itself sets, are not mentioned."""
        new, changed = ([name for name in names if name != result] for names in self._made_by(turn))
        marked, targets = marked_names(prompt), {match[1] for match in TO_TABLE.finditer(prompt)}
        to_offer = [name for name in new if name in marked]
        to_offer += [name for name in changed if name in marked | targets and name not in to_offer]
        if not to_offer or not self.person.is_there or self.denied():
            if others := list(dict.fromkeys([*new, *changed])):
                self._tell(others, screen)
            return
        calls = self.drafts.find_calls(to_offer)
        if self._ask_and_run(calls, QUESTION.format(names=_and(to_offer)), turn, screen) is None:
            self._tell(to_offer, screen)

    def _made_by(self, turn: str) -> tuple[list[str], list[str]]:
        """Return the names the turn created, and the names it changed or deleted."""
        new: dict[str, None] = {}
        changed: dict[str, None] = {}
        for call in self.drafts.done:
            if call.turn == turn:
                incidental = FIGURES | loop_names(to_plain_python(self.shell, call.code))
                new |= dict.fromkeys(name for name in call.changes.new if name not in incidental)
                rest = (*call.changes.changed, *call.changes.deleted)
                changed |= dict.fromkeys(name for name in rest if name not in incidental)
        return list(new), list(changed)

    def apply(self, names: Sequence[str], screen: Screen) -> None:
        """Apply the changes of the variables ``names``, or all changes of the draft if ``names`` is empty (``%agent
        keep``). Raises AgentError if a name is unknown or the changes cannot be applied."""
        drafted_names = [name for call in self.drafts.done for name in call.changes.names]
        if unknown := [name for name in names if name not in drafted_names]:
            existing = f", only: {', '.join(dict.fromkeys(drafted_names))}" if drafted_names else ""
            raise AgentError(f"no draft has made or changed a variable {unknown[0]}{existing}.")
        if not drafted_names:
            raise AgentError(NOTHING_TO_KEEP)
        if reason := self.denied():
            raise AgentError(f"nothing was kept: {reason}.")
        calls = self.drafts.find_calls(names or drafted_names)
        if moved := list(
            dict.fromkeys(name for call in calls for name in call.find_changed_variables(self.shell.user_ns))
        ):
            raise AgentError(
                f"{_and(moved)} changed since the draft read {'it' if len(moved) == 1 else 'them'}: ask again instead."
            )
        card = _card(calls, calls[-1].turn)
        screen.card(card)
        if self._run(calls, card, screen).interrupted:
            raise KeyboardInterrupt

    def offer_in_kernel(
        self, turn: str, card: Card, screen: Screen, *, returns_value: bool = False
    ) -> ExecutionOutcome | None:
        """Offer to run a call in the kernel that a draft does not allow, after the earlier calls of the draft that it
        depends on. Returns the outcome, or None if the user refuses or nobody can answer."""
        if not self.person.is_there or self.denied():
            return None
        code = card.code
        before = self.drafts.find_calls(self.drafts.names(code))
        card.code = "\n\n".join([*(call.code for call in before), code])
        card.where, card.state = "live", WAITING
        screen.card(card)
        if not self.person.agrees(FOR_REAL):
            card.where, card.code, card.state = "draft", code, "running"
            return None
        return self._run(before, card, screen, turn=turn, show=screen.show, returns_value=returns_value)

    def compute_value(self, turn: str, name: str, screen: Screen) -> ProgramValue | None:
        """Run the last program of ``turn`` in the kernel, after the calls that it depends on, and return the value that
        it ends with. The user is asked first; ``name`` is the variable that will get the value. Returns None if the
        user refuses, if nobody can answer, or if the code fails."""
        last = next((call for call in reversed(self.drafts.done) if call.turn == turn), None)
        if last is None or not self.person.is_there or self.denied():
            return None
        before = [call for call in self.drafts.find_calls(last.names) if call is not last]
        outcome = self._ask_and_run([*before, last], SET.format(name=name), turn, screen, returns_value=True)
        return outcome.value if outcome else None

    def _ask_and_run(
        self, calls: Sequence[DraftedCall], question: str, turn: str, screen: Screen, *, returns_value: bool = False
    ) -> ExecutionOutcome | None:
        card = _card(calls, turn)
        card.state = WAITING
        screen.card(card)
        if not self.person.agrees(question):
            card.close("not run")
            screen.card(card)
            return None
        outcome = self._run(calls, card, screen, turn=turn, returns_value=returns_value)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def _run(
        self,
        calls: Sequence[DraftedCall],
        card: Card,
        screen: Screen,
        *,
        turn: str = "",
        show: Show = lambda data, metadata, transient, update: None,
        returns_value: bool = False,
    ) -> ExecutionOutcome:
        """Run the code of ``calls`` in the kernel and update the card. Displayed values are shown only if ``show`` is
        given, because the draft has displayed them already."""
        card.state, card.output = "running", ""
        started = time.monotonic()

        def listen(stream: str, text: str) -> None:
            card.add(text)
            screen.card(card)

        outcome = self.code.run(card.code, listen, show, returns_value=returns_value)
        for affected_turn in dict.fromkeys([*(call.turn for call in calls), *filter(None, [turn])]):
            self.touched.ran(affected_turn, card.code)
        card.add(outcome.traceback)
        state = "done: your kernel has it now" if outcome.status == "success" else STATES[outcome.status]
        card.close(state, time.monotonic() - started)
        screen.card(card)
        self.drafts.forget_calls(calls)
        return outcome

    def _tell(self, names: Sequence[str], screen: Screen) -> None:
        screen.line(LATER.format(names=", ".join(names[:8]), them="it" if len(names) == 1 else "them"))


def marked_names(prompt: str) -> set[str]:
    """Return the names that a prompt marks as variable names: ``{x}``, `x`, ``x = ...``, ``as x``, ``called x``,
    ``named x``, ``into x``, ``a DataFrame x``, ``the list x``. Stems of file names do not count."""
    marked = {name for match in QUOTED.finditer(prompt) for name in match.groups() if name}
    marked |= {name for match in BOUND.finditer(prompt) for name in re.findall(NAME, match[1])}
    marked |= {match[1] for match in OF_KIND.finditer(prompt)}
    for match in CALLED.finditer(prompt):
        is_word = match["first"] in ONE_LETTER_WORDS and not ARTICLE.match(prompt, match.start("first"))
        marked |= set() if is_word else {match["first"], *re.findall(NAME, match["more"])} - {"and"}
    return marked


def _card(calls: Sequence[DraftedCall], turn: str) -> Card:
    return Card(f"keep-{turn}-{time.monotonic_ns()}", "python", "live", "\n\n".join(call.code for call in calls))


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
