"""Removes characters that could control a terminal from text: cursor movement, colors, titles, text direction."""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Matches control sequences (ECMA-48): CSI, strings such as OSC with their content, and short sequences."""
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]{0,500}\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*|\r)\Z")
"""Matches the end of a piece of text if it may be the beginning of a control sequence that the next piece completes. A
sequence that contains a string, such as a window title, is held back up to 500 characters; a longer sequence is printed
as text."""


class PartialText:
    """Makes text printable that arrives in pieces, where a control sequence may be split between two pieces."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Add a piece and return the text that can be printed now. A possible start of a sequence is held back until
        the next piece."""
        text = self._held + piece
        start = UNFINISHED.search(text)
        self._held = start[0] if start else ""
        return printable(text[: len(text) - len(self._held)])

    def end(self) -> str:
        text, self._held = printable(self._held), ""
        return text


def printable(text: str) -> str:
    """Return the text without control characters other than line ends and tabs. A carriage return, which progress bars
    print, becomes a line end."""
    plain = CONTROL.sub("", SEQUENCE.sub("", text.replace("\r\n", "\n")))
    return re.sub(r"\r+", "\n", plain)
