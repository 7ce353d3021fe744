"""Text of others on a terminal: without what moves its cursor, changes its colours or its title, or turns its lines."""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Control sequences (ECMA-48): CSI, strings such as OSC with what stands in them, and short ones."""
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The words, with line ends and tabs. A carriage return, as progress bars write it, ends a line."""
    plain = CONTROL.sub("", SEQUENCE.sub("", text.replace("\r\n", "\n")))
    return re.sub(r"\r+", "\n", plain)
