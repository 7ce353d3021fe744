"""Recognizes an answer that only repeats a table which the same cell displays.

If a question asks for rows, the answer of a small model consists of the rows of the output (``format_rows`` of the
local engine). If the program has displayed a table, these rows are the text of this table. The cell then refers to
the table instead of showing it twice; stored answers, the model's context and ``text/plain`` contain the rows."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from agent_kernel.notebook.display.render import QUIET, Bundle

ROWS = re.compile(r"The result:\n\n(?P<rows> {4}[^\n]*(?:\n {4}[^\n]*)*)\n?")
"""Matches a whole answer that consists of rows."""
MORE = re.compile(r"^ *\.\.\. \d+ more rows$", re.MULTILINE)
"""Matches the line that stands for the rows that the answer leaves out."""
ABOVE = "The result is the table above."


def repeats_table(answer: str, tables: Iterable[str]) -> bool:
    """Return whether ``answer`` consists of rows, and each of them is a line of ``tables``, the texts of the displayed
    tables. Spaces do not count."""
    match = ROWS.fullmatch(answer)
    table_lines = {tuple(line.split()) for table in tables for line in table.splitlines()}
    return match is not None and all(tuple(line.split()) in {*table_lines, ()} for line in _rows(match["rows"]))


def _rows(text: str) -> list[str]:
    return MORE.sub("", text).splitlines()


def table_text(bundle: Bundle) -> str:
    """Return the text of a displayed bundle if it shows an HTML table, otherwise an empty string."""
    return str(bundle.get("text/plain", "")) if "<table" in str(bundle.get("text/html", "")) else ""


def repetition_bundle(answer: str) -> Bundle:
    """Render an answer that repeats a table. The text, for front ends without HTML and for exports, has the rows."""
    return {"text/html": f"<p style='margin:4px 0;{QUIET}'>{html.escape(ABOVE)}</p>", "text/plain": answer}
