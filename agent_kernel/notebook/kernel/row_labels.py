"""Describes the row whose number a program prints.

``df["rain_mm"].idxmax()`` returns the label of a row. In a table whose rows are only numbered, small models take this
number for the answer ("In which month ...?" "In month 9.").
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.kernel.python_syntax import UNREADABLE
from agent_kernel.notebook.kernel.variable_summary import describe_cells, is_frame

SEARCHES = ("idxmax", "idxmin")


def describe_row(code: str, output: str, namespace: Mapping[str, Any]) -> str:
    """Return the values of the row, or an empty string if ``output`` does not show the number of a row that ``code``
    searched in a table of the user. Code and output may be any text."""
    try:
        tree = ast.parse(code)
    except UNREADABLE:
        return ""
    words = output.split()
    for node in ast.walk(tree):
        table: Any = namespace.get(name := _searched_table(node))
        number = _printed_word(tree, node, words)
        if not number.isdecimal() or not is_frame(table):
            continue
        index: Any = getattr(table, "index", None)  # a table of polars has none
        if type(index).__name__ == "RangeIndex" and int(number) in index:
            return f"row {number} of {name}: {describe_cells(table.loc[[int(number)]])}"
    return ""


def _searched_table(node: ast.AST) -> str:
    """Return the variable of a call such as ``df["a"].idxmax()`` or ``df[df.b > 1].a.idxmin()``; otherwise an empty
    string. Selected rows keep their labels; results of other calls have labels of their own."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Subscript() | ast.Attribute() as searched, attr=method)):
            inner: ast.expr = searched
            while isinstance(inner, ast.Subscript | ast.Attribute):
                inner = inner.value
            return inner.id if method in SEARCHES and isinstance(inner, ast.Name) else ""
    return ""


def _printed_word(tree: ast.AST, search: ast.AST, words: list[str]) -> str:
    """Return the word of the output that shows the value of ``search``: the only word, or the one at its place among
    the arguments of ``print``."""
    if len(words) == 1:
        return words[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            for word, argument in zip(words, node.args, strict=False):
                if argument is search:
                    return word
    return ""
