"""Implements ``%agent in``, ``keep``, ``take`` and ``rebuild``, which set where the Python of turns runs, and bring its
results into the kernel or restore them in the sandbox.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.invisible_characters import mark_invisible
from agent_kernel.notebook.display.render import table_bundle
from agent_kernel.notebook.display.screen import screen_for
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.kernel import variable_transfer
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.variable_summary import summary
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandContext, session_path
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
    """Implements the commands that HELP lists, with one method for each. ``target`` decides where Python runs;
    ``applier`` runs the code of drafts in the kernel."""

    def __init__(self, context: CommandContext, target: ExecutionTarget, applier: DraftApplier) -> None:
        self._context = context
        self._target = target
        self._applier = applier

    def in_(self, line: str) -> None:
        self.where(line)

    def where(self, line: str) -> None:
        if line not in ("", "default", *CHOICES):
            raise AgentError(f"%agent in takes {', '.join(CHOICES)} or default.")
        if line:
            self._target.set_default(line)
        self._context.print_line(f"Python runs {self._target.described}.")

    def keep(self, line: str) -> None:
        self._applier.apply(line.replace(",", " ").split(), screen_for(self._context.shell))

    def take(self, line: str) -> None:
        words = line.split()
        if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "as"):
            raise AgentError("%agent take NAME [as OTHER] copies a variable from the sandbox into your kernel.")
        name, other = words[0], words[-1]
        if not other.isidentifier() or keyword.iskeyword(other):
            raise AgentError(f"{other!r} is not a valid variable name. Choose another one: %agent take NAME as OTHER.")
        path = session_path(self._context.require_session(), "variables", name)
        data, headers = self._context.server.raw(path, max_bytes=variable_transfer.MAX_TOGETHER, timeout=TAKE_TIMEOUT_S)
        value = variable_transfer.decode_variable(
            name, headers.get("X-Variable-Encoding", ""), headers.get("X-Variable-Type", ""), data
        )
        replaced = " It replaces the variable of that name." if other in self._context.shell.user_ns else ""
        self._context.shell.user_ns[other] = value
        self._applier.drafts.drop()
        self._context.print_line(f"Now in your kernel: {summary(other, value).partition(chr(10))[0]}.{replaced}")

    def rebuild(self, line: str) -> None:
        arguments = CommandArguments(line)
        path = session_path(self._context.require_session(), "rebuild")
        pieces = self._context.server.call("POST", path, {"dry_run": True})["pieces"]
        if not pieces:
            self._context.print_line("There is nothing to rebuild: no code of this conversation ran in the sandbox.")
            return
        rows = [_row(number, piece) for number, piece in enumerate(pieces, 1)]
        self._context.publish(table_bundle(("", "code", "seconds", "other effects"), rows))
        question = (
            f"Run {'this block' if len(pieces) == 1 else f'these {len(pieces)} blocks'} again in a fresh sandbox?"
        )
        self._context.confirm(arguments, question, "nothing was run")
        done = self._context.server.call("POST", path, {}, timeout=REBUILD_TIMEOUT_S)
        if done["status"] != "success":
            error = " ".join(str(done["error"]).split())[-500:]
            raise AgentError(f"{done['ran']} of {len(pieces)} code blocks ran; the next one failed: {error}")
        message = f"Rebuilt: {done['ran']} of {len(pieces)} code blocks ran; their variables are in the sandbox again."
        self._context.print_line(message)


def _row(number: int, piece: Mapping[str, Any]) -> tuple[object, ...]:
    lines = str(piece["code"]).strip().splitlines()
    more = f" ... ({len(lines)} lines)" if len(lines) > 1 else ""
    effects = "; ".join(f"{effect['kind']}: {effect['what']}" for effect in piece["effects"])
    return number, mark_invisible(lines[0][:100]) + more, round(float(piece["seconds"]), 1), effects
