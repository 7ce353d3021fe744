"""``%agent in``, ``keep``, ``take`` and ``rebuild``: where the Python of turns runs, and how its results reach the
kernel.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.core.invisible_characters import mark_invisible
from agent_kernel.notebook.display.render import line_bundle, table_bundle
from agent_kernel.notebook.display.screen import screen_for
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.kernel import variable_transfer
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.kernel.variable_summary import summary
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, Say
from agent_kernel.notebook.server_client import ServerClient, quote_segment
from agent_kernel.notebook.turn.execution_target import CHOICES, ExecutionTarget

HELP = {
    "in": "live|draft|sandbox|default: set where Python runs when a cell does not choose",
    "where": "same as %agent in",
    "keep": "[NAME ...]: run the code of the last drafts in your kernel, so that it has their results",
    "rebuild": "[--yes]: run this branch's code in the sandbox again to restore its variables; lists the code first",
    "take": "NAME [as OTHER]: copy a variable from the sandbox into your kernel",
}
REBUILD_TIMEOUT_S = 3600.0
TAKE_TIMEOUT_S = 120.0


class PythonCommands:
    """One method for each command; ``table`` maps names to methods."""

    def __init__(
        self, shell: Any, place: ExecutionTarget, keep: DraftApplier, server: Callable[[], ServerClient], say: Say
    ) -> None:
        self._shell = shell
        self._place = place
        self._keep = keep
        self._server = server
        self._say = say
        self.table: dict[str, Callable[[str], None]] = {
            "in": self.where,
            "where": self.where,
            "keep": self.keep,
            "take": self.take,
            "rebuild": self.rebuild,
        }

    @property
    def described(self) -> str:
        """The place where Python runs by default, in words for the user."""
        return self._place.described

    def by_default(self, place: str) -> None:
        """Set where Python runs in cells that do not choose, as configured on the server. "" keeps the built-in
        default."""
        self._place.default = place if place in CHOICES else ""

    def where(self, rest: str) -> None:
        if rest not in ("", "default", *CHOICES):
            raise AgentError(f"%agent in takes {', '.join(CHOICES)} or default.")
        if rest:
            self._place.default = "" if rest == "default" else rest
        self._say(line_bundle(f"Python runs {self._place.described}."))

    def keep(self, rest: str) -> None:
        self._keep.now(rest.replace(",", " ").split(), screen_for(self._shell))

    def take(self, rest: str) -> None:
        words = rest.split()
        if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "as"):
            raise AgentError("%agent take NAME [as OTHER] copies a variable from the sandbox into your kernel.")
        name, other = words[0], words[-1]
        if not other.isidentifier() or keyword.iskeyword(other):
            raise AgentError(f"{other!r} is not a valid variable name.")
        path = f"sessions/{quote_segment(self._session())}/variables/{quote_segment(name)}"
        data, headers = self._server().raw(path, most=variable_transfer.MAX_TOGETHER, timeout=TAKE_TIMEOUT_S)
        value = variable_transfer.decode_variable(
            name, headers.get("X-Variable-Encoding", ""), headers.get("X-Variable-Type", ""), data
        )
        replaced = " It replaces the variable of that name." if other in self._shell.user_ns else ""
        self._shell.user_ns[other] = value
        self._keep.drafts.drop()
        self._say(line_bundle(f"Now in your kernel: {summary(other, value).partition(chr(10))[0]}.{replaced}"))

    def rebuild(self, rest: str) -> None:
        words = CommandArguments(rest)
        path = f"sessions/{quote_segment(self._session())}/rebuild"
        pieces = self._server().call("POST", path, {"dry_run": True})["pieces"]
        if not pieces:
            self._say(line_bundle("There is nothing to rebuild: no code of this conversation ran in the sandbox."))
            return
        rows = [_row(number, piece) for number, piece in enumerate(pieces, 1)]
        self._say(table_bundle(("", "code", "seconds", "other effects"), rows))
        question = f"Run {'this' if len(pieces) == 1 else f'these {len(pieces)}'} again in a fresh sandbox?"
        if "--yes" not in words.flags and not self._keep.person.agrees(question):
            raise AgentError("nothing was run: it was not confirmed (--yes confirms it beforehand).")
        done = self._server().call("POST", path, {}, timeout=REBUILD_TIMEOUT_S)
        if done["status"] != "success":
            raise AgentError(f"{done['ran']} of {len(pieces)} ran; then: {' '.join(str(done['error']).split())[-500:]}")
        message = f"Rebuilt: {done['ran']} of {len(pieces)} ran; their variables are in the sandbox again."
        self._say(line_bundle(message))

    def _session(self) -> str:
        session = self._server().call("GET", "binding")["session"]
        if session is None:
            raise AgentError("this notebook has no session yet; the first %%agent cell starts one.")
        return str(session["id"])


def _row(number: int, piece: Mapping[str, Any]) -> tuple[object, ...]:
    lines = str(piece["code"]).strip().splitlines()
    more = f" ... ({len(lines)} lines)" if len(lines) > 1 else ""
    effects = "; ".join(f"{effect['kind']}: {effect['what']}" for effect in piece["effects"])
    return number, mark_invisible(lines[0][:100]) + more, round(float(piece["seconds"]), 1), effects
