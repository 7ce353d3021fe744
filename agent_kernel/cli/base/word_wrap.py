"""Breaks the lines of running text between words at the width of the terminal. Code blocks and tables stay as they
are."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from typing import TextIO

MIN_WIDTH = 20
"""Width of a terminal, in columns, below which lines are longer than the terminal is wide."""
FENCE = re.compile(r"[ >]*(?:```|~~~)")
TABLE = re.compile(r"\s*\|")
HANGING = re.compile(r"  \S.*?\S  +(?=\S)|\s*(?:> ?|[-*+] +|\d{1,3}[.)] +)*")
"""Matches what stands before the text of a line: the first column of a list in columns, or the sign of a list item."""
CODE_INDENTATION = re.compile(r"(?: {4}|\t)(?!\s*(?:[-*+]|\d{1,3}[.)])(?: |$))")
PIECES = re.compile(r"\n|[^\S\n]+|\S+")


def wrap_text(text: str, stream: TextIO) -> str:
    """Return the text with its lines broken between words if ``stream`` is a terminal, otherwise as it is."""
    if not stream.isatty():
        return text
    wrapper = WordWrapper()
    return wrapper.feed(text) + wrapper.flush()


def print_message(text: str) -> None:
    """Print a message to stderr, with its lines broken between words if stderr is a terminal."""
    print(wrap_text(text, sys.stderr), file=sys.stderr, flush=True)


class WordWrapper:
    """Wraps text that arrives in parts. A word is held back until it is complete, unless it is wider than the terminal.

    The lines that follow a break are indented as the text of the line is: below the text of a list item, for example.
    """

    def __init__(self) -> None:
        self._word = ""
        self._space = ""
        self._line = ""
        """The current line of the text, as far as it was returned; it has no breaks."""
        self._column = 0
        self._in_code = False

    def feed(self, text: str) -> str:
        """Take the next part of the text, and return what can be shown now."""
        shown = ""
        for piece in PIECES.findall(text):
            if not piece.isspace():
                self._word += piece
                continue
            shown += self._take_word()
            shown += self._end_line() if piece == "\n" else ""
            self._space += "" if piece == "\n" else piece
        is_shown = self._is_verbatim(self._space + self._word) or _width(self._word) >= _columns()
        return shown + (self._take_word() if is_shown else "")

    def flush(self) -> str:
        """Return the text that was held back."""
        return self._take_word()

    def _take_word(self) -> str:
        word, self._word = self._word, ""
        if not word:
            return ""
        before, self._space = self._space, ""
        verbatim = self._is_verbatim(before + word)
        if self._line and not verbatim and self._column + _width(before + word) > _columns():
            hanging = HANGING.match(self._line + before + word)
            before = "\n" + " " * min(hanging.end() if hanging else 0, _columns() // 2)
            self._column = 0
            self._line += " " + word
        else:
            self._line += before + word
        self._column += _width(before.lstrip("\n") + word)
        if self._column > _columns():
            self._column %= _columns() + 1  # the terminal itself breaks a word that is too wide
        return before + word

    def _end_line(self) -> str:
        if FENCE.match(self._line):
            self._in_code = not self._in_code
        ended = self._space if self._is_verbatim() else ""
        self._line = self._space = ""
        self._column = 0
        return ended + "\n"

    def _is_verbatim(self, following: str = "") -> bool:
        """Return whether the current line is code or a row of a table; ``following`` is the next part of it."""
        line = self._line + following
        return self._in_code or any(pattern.match(line) for pattern in (FENCE, TABLE, CODE_INDENTATION))


def _columns() -> int:
    """Return how many columns of a line are used. The last one stays free, because some terminals break a line after
    it."""
    return max(shutil.get_terminal_size().columns, MIN_WIDTH) - 1


def _width(text: str) -> int:
    """Return how many columns the text takes: Chinese characters take two, for example, and accents none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)
