"""Corrects a small model's program that subtracts a percentage from one, as in ``price * (1 - discount)`` where the
discount is 10. The program raises no error and its result is wrong. The functions have no side effects.

The description of a table, in the hidden context of a question, says which columns hold texts such as "10%" (see
``text_columns``): the variable with their numbers has a name that ends with ``_percent``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from agent_kernel.core.programs.program_edits import Edit, ParsedProgram
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import CONVERSION, CONVERTS

IS_DIVIDED = re.compile(r"(?<![\w.])(?:100(?:\.0)?|0?\.01|1e-2|1e2)(?![\w.])")
"""Finds a number that makes a fraction of a percentage."""


def with_fractions_of_percentages(code: str, hidden: Sequence[str]) -> str:
    """Return the code with ``1 - x`` and ``1 + x`` replaced by ``1 - x / 100`` and ``1 + x / 100`` where x is a column
    of percentages. ``hidden`` has the texts of the hidden context of the question, which name these columns. The code
    is returned unchanged if it already divides by 100 or multiplies by 0.01."""
    facts = [fact for text in hidden for fact in CONVERSION.finditer(text) if fact["name"].endswith("_percent")]
    if not facts or IS_DIVIDED.search(code):
        return code
    program = ParsedProgram(code)
    names = {fact["name"] for fact in facts}
    labels = {fact["label"] for fact in facts} | names
    for target, value in program.assignments:
        if isinstance(target, ast.Name) and CONVERTS.search(program.source(value)) and _uses(value, names, labels):
            names.add(target.id)
    return program.apply_edits(list(_divisions(program, names, labels))) or code


def _divisions(program: ParsedProgram, names: set[str], labels: set[str]) -> Iterator[Edit]:
    for node in program.expressions:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
            continue
        is_one = isinstance(node.left, ast.Constant) and node.left.value == 1
        share = node.right
        is_whole = isinstance(share, ast.Name | ast.Subscript | ast.Attribute | ast.Call)
        if is_one and is_whole and _uses(share, names, labels):
            yield (*program.span(share), f"{program.source(share)} / 100")


def _uses(value: ast.expr, names: set[str], labels: set[str]) -> bool:
    """Return whether the expression contains a variable of ``names`` or a column of ``labels``."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Attribute) and node.attr in labels:
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in labels:
            return True
    return False
