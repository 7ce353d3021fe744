"""Decides where the Python of a turn runs (in the kernel, in a draft or in the sandbox): where the user chooses,
otherwise in a draft if this kernel can be forked."""

from __future__ import annotations

import os
import sys
from typing import Any

from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.draft.draft import Drafts
from agent_kernel.notebook.draft.draft_request import OUTCOME, read_request

CHOICES = ("live", "draft", "sandbox")
VARIABLE = "AGENT_KERNEL_PYTHON_IN"
"""Environment variable that the server sets for its kernels from the setting ``python_in``."""


def run_request(shell: Any, drafts: Drafts, line: str) -> None:
    """Run code that the server sent in a ``draft_request``, and publish its output and result. If the line is a
    ``trial_request``, run its programs on trial and publish only their outcomes."""
    turn, code = read_request(line)
    if isinstance(turn, list) or isinstance(code, list):
        outcomes = drafts.try_programs(turn, list(code))
        tried = [outcome.to_json() for outcome in outcomes]
        shell.display_pub.publish({OUTCOME: {"status": "success", "text": "", "drafted": [], "tried": tried}})
        return

    def listen(stream: str, text: str) -> None:
        (sys.stderr if stream == "stderr" else sys.stdout).write(text)

    def show(data: Any, metadata: Any, transient: Any, update: bool) -> None:
        shell.display_pub.publish(dict(data), dict(metadata), transient=dict(transient), update=update)

    prepared = drafts.prepare_code(code)
    outcome = drafts.run(turn, prepared, listen, show)
    changed = [call.changes.names for call in drafts.done[-1:] if (call.turn, call.code) == (turn, prepared)]
    result = {"status": outcome.status, "text": outcome.text, "drafted": [name for names in changed for name in names]}
    shell.display_pub.publish({OUTCOME: result})


class ExecutionTarget:
    """Decides where the Python of each turn runs. ``default`` is where the Python of cells that choose nothing runs; ""
    means in a draft if a draft is possible, otherwise in the kernel after asking the user."""

    def __init__(self, shell: Any, drafts: Drafts) -> None:
        self._shell = shell
        self._drafts = drafts
        self._announced: set[str] = set()
        self.set_default(os.environ.get(VARIABLE, ""))

    def set_default(self, choice: str) -> None:
        """Set where the Python of cells that choose nothing runs. A value that is not in CHOICES restores the built-in
        default."""
        self.default = choice if choice in CHOICES else ""

    def of(self, choice: str, *, live_is_allowed: bool = False) -> str:
        """Return where the Python of one turn runs: "live", "draft" or "sandbox". ``choice`` is what the cell chooses,
        or "" if it chooses nothing. ``live_is_allowed`` means that the user lets code run in the kernel without asking;
        then a draft is used only if the user chose it."""
        chosen = choice or self.default
        if chosen not in ("", "draft"):
            return chosen
        if not chosen and live_is_allowed:
            return "live"
        reason = self._drafts.unfit()
        if not reason:
            return "draft"
        if chosen:
            self._say(
                f"No draft is possible: {reason}. Python runs in the sandbox instead, on copies of variables.",
                always=True,
            )
            return "sandbox"
        self._say(f"No draft is possible: {reason}. Python runs in your kernel instead, after asking.")
        return "live"

    @property
    def described(self) -> str:
        words = {"live": "in your kernel", "sandbox": "in the sandbox", "draft": "in a draft of your kernel"}
        if self.default:
            return f"{words[self.default]}, unless a cell chooses otherwise (--in live|draft|sandbox)"
        reason = self._drafts.unfit()
        if reason:
            return f"in your kernel, after asking; no draft is possible: {reason}"
        return "in a draft of your kernel, unless a cell says --in live or --in sandbox"

    def _say(self, text: str, *, always: bool = False) -> None:
        if always or text not in self._announced:
            self._announced.add(text)
            self._shell.display_pub.publish(line_bundle(text))
