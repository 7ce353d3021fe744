"""Holds back log probabilities until the text of their tokens is sent, and drops those of a stop string."""

from __future__ import annotations

from collections import deque

from agent_kernel.core.protocols import TokenLogprob


class Logprobs:
    """Holds the tokens whose text has not been sent yet, each with the position at which its text ends."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def add(self, text: str, end: int, logprob: float) -> None:
        """Add a token. ``text`` is the text that the token completed, ``end`` the position in the answer at which this
        text ends. If several tokens form one character, ``text`` is empty for all but the last of them."""
        self._waiting.append((end, TokenLogprob(text, logprob)))

    def due(self, length: int) -> tuple[TokenLogprob, ...]:
        """Return the tokens whose text lies within the first ``length`` characters of the answer. Each token is
        returned by one call only."""
        due = []
        while self._waiting and self._waiting[0][0] <= length:
            due.append(self._waiting.popleft()[1])
        return tuple(due)
