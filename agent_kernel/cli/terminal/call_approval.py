"""Decides whether the calls of a turn in a terminal may run: by the option --allow, or by the user's reply."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent_kernel.cli.base.command import argument
from agent_kernel.cli.terminal.line_reader import ReadReply
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.settings import Settings
from agent_kernel.permissions.approval_answer import Answer
from agent_kernel.permissions.gate import DEFAULTS

KINDS = tuple(sorted({kind.partition(".")[0] for kind in DEFAULTS}))
ALLOW = argument(
    "--allow",
    metavar="KIND",
    action="append",
    default=[],
    choices=KINDS,
    help=f"answer yes when a call of this kind needs your permission; may be repeated; one of {', '.join(KINDS)}",
)
ANYBODY = frozenset({"*"})
"""The kinds of calls about which a terminal's turn asks. Without a user the answer is no, with a reason."""

MAX_REPLIES = 3
"""Number of replies after which the answer is no, if the user gives none of the offered ones."""
NO_WEB = "the model has no web tools, because the setting web is off. To turn it on, set AGENT_KERNEL_WEB=duckduckgo."


def explain_missing_tools(allowed: Collection[str], settings: Settings) -> str:
    """Return why no call of a kind in ``allowed`` is possible and what to do, if the setting of its tools is off; else
    an empty text."""
    return NO_WEB if "web" in allowed and not settings.has_web_search else ""


class CallApproval:
    """Answers the questions of turns. ``allowed`` are the kinds that the user allowed in advance. ``read_reply`` asks
    the user; None if there is none."""

    def __init__(self, allowed: Collection[str], read_reply: ReadReply | None) -> None:
        self._allowed = allowed
        self._read_reply = read_reply

    def is_allowed(self, request: ApprovalRequired) -> bool:
        """Return whether the user allowed this call in advance. This does not count after text of unknown origin, which
        may have caused the call."""
        return _group(request) in self._allowed and not request.again

    def explain_denial(self, request: ApprovalRequired) -> str:
        """Return why the call is denied and what to do, if there is no user who can answer; else an empty text."""
        if self._read_reply is not None:
            return ""
        if request.again:
            return f"{request.label} was denied: it needs your answer ({request.again}), and there is no terminal."
        return (
            f"{request.label} was denied: it needs your permission, and there is no terminal to ask you. To allow it, "
            f"add --allow {_group(request)}, or run the command in a terminal."
        )

    async def answer(self, request: ApprovalRequired) -> Answer:
        """Return the answer to a question, which the user has been shown."""
        if self.is_allowed(request):
            return Answer("approve", message="allowed in advance", shown=request.shown)
        if self._read_reply is None:
            return Answer("deny", message="nobody can answer here", shown=request.shown)
        session = "session" in request.remember
        question = f"Run it? [y]es, [n]o{', [s] yes for this conversation' if session else ''}: "
        reply = await _read_offered(self._read_reply, question, ("yes", "no", *(("session",) if session else ())))
        if reply == "session":
            return Answer("approve", remember="session", shown=request.shown)
        return Answer("approve" if reply == "yes" else "deny", shown=request.shown)


async def _read_offered(read_reply: ReadReply, question: str, words: Sequence[str]) -> str:
    """Ask the question, again after a reply that begins none of the ``words``, and return the word of the reply. Return
    "no" for an empty reply, such as Ctrl-C gives, and after MAX_REPLIES."""
    for _ in range(MAX_REPLIES):
        reply = (await read_reply(question)).strip().lower()
        if not reply:
            break
        if word := next((word for word in words if word.startswith(reply)), ""):
            return word
    return "no"


def _group(request: ApprovalRequired) -> str:
    return request.kind.partition(".")[0]
