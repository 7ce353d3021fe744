"""Joins the rest of an answer to the text of the answer that has already been delivered."""

from __future__ import annotations

import itertools

from agent_kernel.core.protocols import TextChunk, TokenLogprob

COMPARED = 40
"""Maximum number of characters by which a rest is recognized as the same answer from its beginning."""


class AnswerRestarted(Exception):
    """The server has begun another answer in place of continuing the text."""


class TextSeam:
    """Takes the pieces of a rest in order. ``delivered`` is the text before it. The server got that text without the
    white space at its end (``without_end``), which many chat templates remove.

    The first characters are held back as long as they are equal to the beginning of ``delivered``. White space with
    which the rest repeats the end of ``delivered`` is removed.
    """

    def __init__(self, delivered: str) -> None:
        self._beginning = delivered.strip()[:COMPARED]
        self._repeated = delivered[len(without_end(delivered)) :]
        self._held = ""
        self._logprobs: tuple[TokenLogprob, ...] = ()
        self._is_joined = not self._beginning

    @property
    def is_rest(self) -> bool:
        """Whether there is text before the pieces."""
        return bool(self._beginning)

    def push(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> TextChunk | None:
        """Return the text that can be delivered now, or None. Raises AnswerRestarted."""
        self._held += text
        self._logprobs += logprobs
        if not self._is_joined:
            begun = self._held.lstrip()[: len(self._beginning)]
            if begun == self._beginning:
                raise AnswerRestarted
            self._is_joined = not self._beginning.startswith(begun)
        return self.flush() if self._is_joined else None

    def flush(self) -> TextChunk | None:
        """Return the text that was held back, or None. The caller calls it at the end of the rest."""
        pairs = zip(self._held, self._repeated, strict=False)
        repeated = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._repeated = "" if repeated < len(self._held) else self._repeated[repeated:]
        chunk = TextChunk(self._held[repeated:], self._logprobs)
        self._held, self._logprobs = "", ()
        return chunk if chunk.text else None


def without_end(text: str) -> str:
    """Return ``text`` without the white space at its end."""
    return text.rstrip()
