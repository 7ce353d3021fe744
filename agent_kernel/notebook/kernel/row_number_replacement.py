"""Replaces the row number that a program prints with the values of that row.

``df["rain_mm"].idxmax()`` returns the label of a row. If the rows of the table are only numbered, small models take
this number for the answer ("In which month ...?" "In month 9."), even if the values of the row follow it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.programs.syntax_tree import parse_or_empty
from agent_kernel.notebook.kernel.variable_summary import describe_cells, is_frame

SEARCHES = ("idxmax", "idxmin")


def with_row_values(code: str, output: str, namespace: Mapping[str, Any]) -> str:
    """Replace the number of a row in the output with the values of this row. The output is returned unchanged unless it
    shows the number of a row that ``code`` searched in a table of the user. Code and output may be any text."""
    words = list(re.finditer(r"\S+", output))
    tree = parse_or_empty(code)
    for node in ast.walk(tree):
        table: Any = namespace.get(name := _searched_table(node))
        at = _place_of(tree, node, len(words)) if is_frame(table) else None
        number = words[at][0] if at is not None else ""
        if at is not None and number.isdecimal() and _has_row(table, int(number)):
            values = describe_cells(table.loc[[int(number)]])
            return f"{output[: words[at].start()]}{values} (row {number} of {name}){output[words[at].end() :]}".strip()
    return output


def _has_row(table: Any, number: int) -> bool:
    """Return whether the rows of the table are numbered consecutively, without labels of their own, and one of them has
    this number."""
    index: Any = getattr(table, "index", None)  # a table of polars has no index
    return type(index).__name__ == "RangeIndex" and number in index


def _searched_table(node: ast.AST) -> str:
    """Return the name of the table in a call such as ``df["a"].idxmax()`` or ``df[df.b > 1].a.idxmin()``; for any other
    expression, return an empty string. Selected rows keep the labels of the table; results of other calls have labels
    of their own."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Subscript() | ast.Attribute() as searched, attr=method)):
            inner: ast.expr = searched
            while isinstance(inner, ast.Subscript | ast.Attribute):
                inner = inner.value
            return inner.id if method in SEARCHES and isinstance(inner, ast.Name) else ""
    return ""


def _place_of(tree: ast.AST, search: ast.AST, words: int) -> int | None:
    """Return the index of the word in the output that shows the value of ``search``; None if it is unknown. If the
    output has only one word, that is its index. Otherwise the index is the position of ``search`` among the arguments
    of ``print``."""
    if words == 1:
        return 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            for at, argument in enumerate(node.args[:words]):
                if argument is search:
                    return at
    return None
