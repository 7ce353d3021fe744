"""What a draft made, brought into the person's kernel: the same code, run for real, once, after they were shown it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.notebook.capture import Show
from agent_kernel.notebook.draft import Drafted, Drafts
from agent_kernel.notebook.live import LiveCode, Outcome
from agent_kernel.notebook.oneline import AgentError
from agent_kernel.notebook.person import Person
from agent_kernel.notebook.render import Card
from agent_kernel.notebook.screen import Screen
from agent_kernel.notebook.touched import Touched

QUESTION = "Keep {names} in your kernel? It runs the same code for real. [y]es / [n]o: "
FOR_REAL = "A draft may not do this. Run it in your kernel for real? [y]es / [n]o: "
LATER = "In a draft only: {names}. %agent keep brings {them} into your kernel."
NOTHING_TO_KEEP = "there is nothing to keep: no draft has made or changed a variable since your kernel was last used."


def _not_again(
    data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], update: bool
) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True)
class Keep:
    """``denied`` says why no code of an agent may run in this kernel, empty if it may; a person's yes does not change
    it."""

    shell: Any
    drafts: Drafts
    person: Person
    code: LiveCode
    touched: Touched
    denied: Callable[[], str]

    def after(self, turn: str, prompt: str, screen: Screen) -> None:
        """At the end of a turn: the person is asked once, if it made or changed a variable that they named. What they
        did not name is told in a line."""
        made = [name for call in self.drafts.done if call.turn == turn for name in call.changes.names]
        if not made:
            return
        named = [name for name in dict.fromkeys(made) if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", prompt)]
        if not named or not self.person.is_there or self.denied():
            self._tell(list(dict.fromkeys(made)), screen)
            return
        calls = self.drafts.needed(named)
        if self._asked(calls, QUESTION.format(names=_and(named)), turn, screen) is None:
            self._tell(named, screen)

    def now(self, names: Sequence[str], screen: Screen) -> None:
        """``%agent keep [NAME ...]``: those names, or all that the draft made. Raises AgentError."""
        known = [name for call in self.drafts.done for name in call.changes.names]
        if unknown := [name for name in names if name not in known]:
            there = f"; there are: {', '.join(dict.fromkeys(known))}" if known else ""
            raise AgentError(f"no draft has made {unknown[0]}{there}.")
        if not known:
            raise AgentError(NOTHING_TO_KEEP)
        if reason := self.denied():
            raise AgentError(f"nothing was kept: {reason}.")
        calls = self.drafts.needed(names or known)
        if moved := list(dict.fromkeys(name for call in calls for name in call.moved_on(self.shell.user_ns))):
            raise AgentError(
                f"{_and(moved)} changed since the draft read {'it' if len(moved) == 1 else 'them'}: ask again instead."
            )
        card = _card(calls, calls[-1].turn)
        screen.card(card)
        if self._run(calls, card, screen).interrupted:
            raise KeyboardInterrupt

    def for_real(self, turn: str, card: Card, screen: Screen) -> Outcome | None:
        """A call that a draft may not do, with what earlier calls made for it. None: the person said no, or there is
        nobody."""
        if not self.person.is_there or self.denied():
            return None
        code = card.code
        before = self.drafts.needed(self.drafts.names(code))
        card.code = "\n\n".join([*(call.code for call in before), code])
        card.where, card.state = "live", "waiting for your answer"
        screen.card(card)
        if self.person.choose(FOR_REAL, {"yes": "yes", "no": "no"}, "no") != "yes":
            card.where, card.code, card.state = "draft", code, "running"
            return None
        return self._run(before, card, screen, turn=turn, show=screen.show)

    def _asked(self, calls: Sequence[Drafted], question: str, turn: str, screen: Screen) -> Outcome | None:
        card = _card(calls, turn)
        card.state = "waiting for your answer"
        screen.card(card)
        if self.person.choose(question, {"yes": "yes", "no": "no"}, "no") != "yes":
            card.close("not run")
            screen.card(card)
            return None
        outcome = self._run(calls, card, screen, turn=turn)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def _run(
        self, calls: Sequence[Drafted], card: Card, screen: Screen, *, turn: str = "", show: Show = _not_again
    ) -> Outcome:
        """Unless told otherwise nothing is shown but what stands in the card: pictures and tables were shown when the
        draft made them."""
        card.state, card.output = "running", ""
        started = time.monotonic()

        def listen(stream: str, text: str) -> None:
            card.add(text)
            screen.card(card)

        outcome = self.code.run(card.code, listen, show)
        for each in dict.fromkeys([*(call.turn for call in calls), *filter(None, [turn])]):
            self.touched.ran(each, card.code)
        card.add(outcome.traceback)
        words = {"success": "done: your kernel has it now", "interrupted": "stopped"}
        card.close(words.get(outcome.status, "failed"), time.monotonic() - started)
        screen.card(card)
        self.drafts.kept(calls)
        return outcome

    def _tell(self, names: Sequence[str], screen: Screen) -> None:
        screen.line(LATER.format(names=", ".join(names[:8]), them="it" if len(names) == 1 else "them"))


def _card(calls: Sequence[Drafted], turn: str) -> Card:
    return Card(f"keep-{turn}-{time.monotonic_ns()}", "python", "live", "\n\n".join(call.code for call in calls))


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
