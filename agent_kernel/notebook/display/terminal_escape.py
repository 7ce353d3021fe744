"""Text of others on a terminal: without what moves its cursor, changes its colours or its title, or turns its lines."""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Control sequences (ECMA-48): CSI, strings such as OSC with what stands in them, and short ones."""
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]{0,500}\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*|\r)\Z")
"""What may be the beginning of a sequence; a string that is longer than this is taken for none."""


class PartialText:
    """A text that comes in pieces, which may cut a sequence in two."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """What can be printed of it now."""
        text = self._held + piece
        found = UNFINISHED.search(text)
        self._held = found[0] if found else ""
        return printable(text[: len(text) - len(self._held)])

    def end(self) -> str:
        text, self._held = printable(self._held), ""
        return text


def printable(text: str) -> str:
    """The words, with line ends and tabs. A carriage return, as progress bars write it, ends a line."""
    plain = CONTROL.sub("", SEQUENCE.sub("", text.replace("\r\n", "\n")))
    return re.sub(r"\r+", "\n", plain)
