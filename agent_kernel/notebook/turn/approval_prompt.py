"""One question about a call, as the person of this notebook answers it: now, or before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from agent_kernel.core.events import ApprovalRequired
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.turn.session_permissions import LIVE, Consent

IN_KERNEL = "Run this in your kernel?"
ANYTHING = "Let the agent do this?"
WORDS = {
    "yes": "[y]es",
    "no": "[n]o",
    "session": "[s]ession",
    "folder": "[f]older for this session",
    "never": "never",
}


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """``allowed``: kinds that need no question in this turn alone; ``remembered``: what was allowed for the session
    counts in it."""

    person: Person
    consent: Consent
    session: str
    allowed: frozenset[str] = frozenset()
    remembered: bool = True

    def decision(self, asked: ApprovalRequired, show: Callable[[str], None]) -> tuple[str, str]:
        """("approve" or "deny", why). ``show`` tells the person that their answer is awaited, and why again."""
        if decided := self.decided(asked):
            return decided
        if not self.person.is_there:
            return "deny", "nobody can answer here"
        show(f"waiting for your answer{f', again: {asked.again}' if asked.again else ''}")
        return self._answered(asked, _tool(asked))

    def decided(self, asked: ApprovalRequired) -> tuple[str, str] | None:
        """As the person has answered it before; None: only they can tell."""
        tool = _tool(asked)
        if self.consent.refuses(self.session, asked.kind, tool):
            return "deny", "the person does not want to be asked for it again in this session"
        if not asked.again and asked.kind in self.allowed:
            return "approve", "the person asked for it in this cell"
        if not asked.again and self.remembered and self.consent.allows(self.session, asked.kind, tool):
            return "approve", "the person allowed it for this session"
        return None

    def _answered(self, asked: ApprovalRequired, tool: str) -> tuple[str, str]:
        can = [word for word in WORDS if word in ("yes", "no", *asked.remember)]
        question = f"{IN_KERNEL if asked.kind == LIVE else ANYTHING} {' / '.join(WORDS[word] for word in can)}: "
        answer = self.person.choose(question, {word: word for word in can}, "no")
        match answer:
            case "session":
                self.consent.allow(self.session, asked.kind, tool)
            case "folder":
                access, _, path = tool.partition(":")
                self.consent.allow(self.session, asked.kind, f"{access}:{PurePath(path).parent}")
            case "never":
                self.consent.refuse(self.session, asked.kind, tool)
        return ("deny", "the person said no") if answer in ("no", "never") else ("approve", "the person said yes")


def _tool(asked: ApprovalRequired) -> str:
    """What an answer for the session is about: the tool, or the path."""
    if asked.kind == "path":
        return f"{asked.arguments.get('access', '')}:{asked.arguments.get('path', '')}"
    return asked.name
