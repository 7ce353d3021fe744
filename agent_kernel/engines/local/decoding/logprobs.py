"""Log probabilities travel with the text they belong to: never before it, and never those of a stop string."""

from __future__ import annotations

from collections import deque

from agent_kernel.core.protocols import TokenLogprob


class Logprobs:
    """Tokens whose text has not been given out yet, with the place at which it ends."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def add(self, text: str, end: int, logprob: float) -> None:
        """``text`` is what the token added: empty for the first tokens of a character that several make up."""
        self._waiting.append((end, TokenLogprob(text, logprob)))

    def due(self, length: int) -> tuple[TokenLogprob, ...]:
        """Those that lie within the first ``length`` characters of the answer, each once."""
        told = []
        while self._waiting and self._waiting[0][0] <= length:
            told.append(self._waiting.popleft()[1])
        return tuple(told)
