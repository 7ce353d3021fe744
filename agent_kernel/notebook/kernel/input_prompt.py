"""Asks the user through the kernel's input request. Widgets cannot be used, because they do not respond while a cell
runs."""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Sequence
from typing import Any

from IPython.core.error import StdinNotImplementedError

from agent_kernel.notebook.kernel.cell_identity import parent_request

TRIES = 3


class Person:
    """The user at the front end. ``waited_s`` counts the seconds spent waiting for answers."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.waited_s = 0.0

    @property
    def is_there(self) -> bool:
        """Whether the user can be asked. False under nbclient, papermill and other front ends that offer no input."""
        if getattr(self._shell, "kernel", None) is None:
            return sys.stdin is not None and sys.stdin.isatty()
        return bool(parent_request(self._shell).get("content", {}).get("allow_stdin"))

    @property
    def has_front_end(self) -> bool:
        """Whether this is a kernel, so that the user may have a page with the chat panel open. False in IPython without
        a kernel."""
        return getattr(self._shell, "kernel", None) is not None

    def choose(self, question: str, words: Sequence[str], otherwise: str) -> str:
        """Ask ``question`` and return one of ``words``. The user may type only the beginning of a word, in upper or
        lower case. Returns ``otherwise`` if input is not possible, or after TRIES invalid answers."""
        for _ in range(TRIES):
            started = time.monotonic()
            try:
                typed = builtins.input(question).strip().lower()
            except (EOFError, StdinNotImplementedError):
                return otherwise
            finally:
                self.waited_s += time.monotonic() - started
            if typed and (chosen := next((word for word in words if word.startswith(typed)), "")):
                return chosen
        return otherwise

    def agrees(self, question: str) -> bool:
        """Ask a yes/no question and return whether the user answered yes. Returns False without asking if the user
        cannot be asked."""
        return self.is_there and self.choose(f"{question} [y]es / [n]o: ", ("yes", "no"), "no") == "yes"
