"""Stores what code prints in a draft while it runs."""

from __future__ import annotations

from agent_kernel.core.messages import shorten
from agent_kernel.notebook.kernel.capture import Listener
from agent_kernel.notebook.kernel.live_execution import RESULT_CHARS


class PrintedOutput:
    """Stores the printed output of a call and passes it on. If the draft ends before the call has a result, the model
    reads this output instead."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._parts: list[str] = []
        self._size = 0

    def add(self, stream: str, text: str) -> None:
        if self._size < 4 * RESULT_CHARS:
            self._parts.append(text)
            self._size += len(text)
        self._listener(stream, text)

    def text_with(self, reason: str) -> str:
        return shorten("".join([*self._parts, "\n" * bool(self._parts), reason]), RESULT_CHARS)
