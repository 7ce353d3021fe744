"""The person at the front end, if there is one: asked through its input, not through widgets, which wait while a cell
runs."""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Mapping
from typing import Any

from IPython.core.error import StdinNotImplementedError

from agent_kernel.notebook.kernel.cell_identity import parent_request

TRIES = 3


class Person:
    """``waited_s`` counts the seconds in which answers were awaited."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.waited_s = 0.0

    @property
    def is_there(self) -> bool:
        """False under nbclient, papermill and whatever else says that it has no input."""
        if getattr(self._shell, "kernel", None) is None:
            return sys.stdin is not None and sys.stdin.isatty()
        return bool(parent_request(self._shell).get("content", {}).get("allow_stdin"))

    def choose(self, question: str, answers: Mapping[str, str], otherwise: str) -> str:
        """``answers`` maps what may be typed (by its beginning, in any case) to what it means. ``otherwise`` is meant
        by silence and by TRIES answers that mean nothing."""
        for _ in range(TRIES):
            asked = time.monotonic()
            try:
                typed = builtins.input(question).strip().lower()
            except (EOFError, StdinNotImplementedError):
                return otherwise
            finally:
                self.waited_s += time.monotonic() - asked
            meant = [meaning for word, meaning in answers.items() if typed and word.startswith(typed)]
            if meant:
                return meant[0]
        return otherwise

    def agrees(self, question: str) -> bool:
        return self.is_there and self.choose(f"{question} [y]es / [n]o: ", {"yes": "yes", "no": "no"}, "no") == "yes"
