"""``%agent`` on the python of this notebook's turns: where it runs, and what of it comes into the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_kernel.notebook.conversation import Say
from agent_kernel.notebook.keep import Keep
from agent_kernel.notebook.oneline import AgentError
from agent_kernel.notebook.place import CHOICES, Place
from agent_kernel.notebook.render import line_bundle
from agent_kernel.notebook.screen import screen_for

HELP = {
    "in": "live|draft|sandbox|default: where python runs when a cell does not say",
    "where": "the same as %agent in",
    "keep": "[NAME ...]: run the code of the last drafts for real, so that your kernel has what they made",
}


class Python:
    """One method for each command, by its name; ``table`` has them."""

    def __init__(self, shell: Any, place: Place, keep: Keep, say: Say) -> None:
        self._shell = shell
        self._place = place
        self._keep = keep
        self._say = say
        self.table: dict[str, Callable[[str], None]] = {"in": self.where, "where": self.where, "keep": self.keep}

    @property
    def described(self) -> str:
        """Where python runs now, for people."""
        return self._place.described

    def where(self, rest: str) -> None:
        if rest not in ("", "default", *CHOICES):
            raise AgentError(f"%agent in is {', '.join(CHOICES)} or default.")
        if rest:
            self._place.default = "" if rest == "default" else rest
        self._say(line_bundle(f"Python runs {self._place.described}."))

    def keep(self, rest: str) -> None:
        self._keep.now(rest.replace(",", " ").split(), screen_for(self._shell))
