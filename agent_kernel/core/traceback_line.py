"""Finds the line of a program that failed in the traceback that its tool result shows. The functions have no side
effects."""

from __future__ import annotations

import re

FRAME = re.compile(r"^ +(?:File \"[^\"\n]*\", )?line (\d+), in .*\n    (.*)$", re.MULTILINE)
"""A frame of a traceback as a model reads it: its line number, then the line itself."""


def failed_line(result: str) -> str:
    """Return the line of the program that failed, as the traceback of a result shows it; empty without one."""
    frame = FRAME.search(result)
    return frame[2].strip() if frame else ""
