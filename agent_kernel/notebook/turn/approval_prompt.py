"""Answers one approval request with an earlier decision of the user, or asks the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from agent_kernel.core.events import ApprovalRequired
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.server_client import ServerClient, route
from agent_kernel.notebook.turn.session_permissions import LIVE, Consent

IN_KERNEL = "Run this in your kernel?"
ANYTHING = "Let the agent do this?"
WORDS = {
    "yes": "[y]es",
    "no": "[n]o",
    "edit": "[e]dit in the panel",
    "session": "[s]ession",
    "folder": "[f]older for this session",
    "never": "never",
}


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """Decides the approval requests of one turn, with the user's help where needed. ``allowed`` are kinds of calls that
    the user approved for this turn only. With ``remembered`` False, permissions stored for the session are ignored."""

    person: Person
    consent: Consent
    session: str
    allowed: frozenset[str] = frozenset()
    remembered: bool = True

    def decision(self, request: ApprovalRequired, show: Callable[[str], None]) -> tuple[str, str]:
        """Return ("approve" or "deny", reason). If no earlier decision applies, the user is asked. Returns ("edit", "")
        if the user chooses to edit the call in the panel and to answer the request there. ``show`` is called with text
        about the state of the call while the call waits for the answer."""
        if decided := self.find_decision(request):
            return decided
        if not self.person.is_there:
            return "deny", "nobody can answer here"
        show(f"waiting for your answer{f', again: {request.again}' if request.again else ''}")
        return self._ask_user(request, _tool(request))

    def find_decision(self, request: ApprovalRequired) -> tuple[str, str] | None:
        """Return ("approve" or "deny", reason) of an earlier decision of the user, or None if the user must be
        asked."""
        tool = _tool(request)
        if self.consent.refuses(self.session, request.kind, tool):
            return "deny", "the person does not want to be asked for it again in this session"
        if not request.again and request.kind in self.allowed:
            return "approve", "the person asked for it in this cell"
        if not request.again and self.remembered and self.consent.allows(self.session, request.kind, tool):
            return "approve", "the person allowed it for this session"
        return None

    def _ask_user(self, request: ApprovalRequired, tool: str) -> tuple[str, str]:
        edit = ("edit",) if request.editable and self.person.has_front_end else ()
        can = [word for word in WORDS if word in ("yes", "no", *edit, *request.remember)]
        question = f"{IN_KERNEL if request.kind == LIVE else ANYTHING} {' / '.join(WORDS[word] for word in can)}: "
        answer = self.person.choose(question, can, "no")
        match answer:
            case "edit":
                return "edit", ""
            case "session":
                self.consent.allow(self.session, request.kind, tool)
            case "folder":
                access, _, path = tool.partition(":")
                self.consent.allow(self.session, request.kind, f"{access}:{PurePath(path).parent}")
            case "never":
                self.consent.refuse(self.session, request.kind, tool)
        return ("deny", "the person said no") if answer in ("no", "never") else ("approve", "the person said yes")


def post_decision(server: ServerClient, request: ApprovalRequired, decision: str, reason: str) -> None:
    """Send the decision about a request to the server. The decision applies to the call exactly as it was shown. Raises
    Conflict if another client has already decided."""
    body = {"decision": decision, "message": reason, "shown": request.shown}
    server.call("POST", route("agent", "approvals", request.approval), body)


def _tool(request: ApprovalRequired) -> str:
    """Return the key under which a decision for the whole session is stored: the name of the tool. For a request to
    access a path, the key is the kind of access and the path, as in ``read:/data/a.csv``."""
    if request.kind == "path":
        return f"{request.arguments.get('access', '')}:{request.arguments.get('path', '')}"
    return request.name
