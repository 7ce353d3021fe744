"""Defines the values of inline completion: the text around the cursor, and the answer of an engine. An engine that can
complete code implements ``InfillEngine`` besides ``Engine``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

Silence: TypeAlias = Literal["", "busy", "unloaded", "unsupported"]
"""The reason why there is no completion: a turn uses the model (busy), the model is not loaded (unloaded), or the model
was not trained to fill in text (unsupported). Empty if the model completes the code."""
LINE_TOKENS = 24
BLOCK_TOKENS = 64
BEFORE_CHARACTERS = 1_500
AFTER_CHARACTERS = 100
"""Maximum number of characters of the text after the cursor. In the prompt this text follows the text that changes with
every key, so the model reads it again for each request. With this limit, a request that continues in the same cell
reads at most 54 new tokens: one step of the model. With 200 characters, one request in seven takes two steps."""
STEP = 1_000
"""The beginning of a long text before the cursor is cut off, always a multiple of this many characters. The prompts for
the next keystrokes and cells therefore begin with the same text, which the KV cache already contains."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The code before and after the cursor, and ``context``: the code of earlier cells."""

    prefix: str
    suffix: str = ""
    context: str = ""

    def before(self) -> str:
        """Return the end of the text before the cursor: at most BEFORE_CHARACTERS, and whole lines if possible."""
        text = f"{self.context}\n\n{self.prefix}" if self.context else self.prefix
        excess = len(text) - BEFORE_CHARACTERS
        if excess <= 0:
            return text
        start = -(-excess // STEP) * STEP
        line = text.find("\n", start - 1) + 1
        return text[line or start :]

    def after(self) -> str:
        """Return the beginning of the text after the cursor: at most AFTER_CHARACTERS, and whole lines if possible. If
        there is no text after the cursor, return a line end, because without it small models do not complete the
        line."""
        text = self.suffix[:AFTER_CHARACTERS] or "\n"
        return text if len(text) >= len(self.suffix) or "\n" not in text else text[: text.rindex("\n") + 1]

    @property
    def one_line(self) -> bool:
        """Whether only the rest of the cursor's line is completed, because this line already has code."""
        return bool(self.prefix.rpartition("\n")[2].strip() or self.suffix.partition("\n")[0].strip())

    def trim(self, text: str) -> str:
        """Return ``text`` up to the first blank line, or up to the first line that is indented less than the cursor's
        line. If the cursor's line already has code, return only the first line of ``text``, which is the rest of the
        cursor's line."""
        first, *rest = text.split("\n")
        if self.one_line:
            return first.rstrip()
        line = self.prefix.rpartition("\n")[2]
        lines = [first.removeprefix(line)]  # small models repeat the indentation before the cursor
        for following in rest:
            if not following.strip() or not following.startswith(line):
                break
            lines.append(following)
        return "\n".join(lines).rstrip()


@dataclass(frozen=True, slots=True)
class Filling:
    """The text of a completion so far, or the reason why there is none."""

    text: str = ""
    silence: Silence = ""


@runtime_checkable
class InfillEngine(Protocol):
    def infill(self, gap: Gap) -> AsyncGenerator[Filling, None]:
        """Complete the code at the cursor; each value has the whole text so far. The call does not load a model and
        does not wait for other requests; it ends when a model call of a turn begins. Closing the generator cancels the
        decoding."""
        ...
