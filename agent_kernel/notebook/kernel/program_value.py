"""Determines the value that a program ends with: its last expression, the argument of its last ``print``, or the value
of its last assignment.

The value is taken while the program runs, so nothing is evaluated twice. Only the syntax tree decides which expression
counts.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent_kernel.core.programs.syntax_tree import parse_or_empty

HIDDEN = "__agent_kernel_value__"
"""The variable that holds the value during the run; removed afterwards."""
DISPLAYS = ("print", "display")
AS_TEXT = ("to_string", "to_markdown")
"""Methods of tables that return text. If a program ends with such a text, its value is the table."""


class ProgramValue(NamedTuple):
    """The value of a program. ``elsewhere`` is the name of its type if the value exists only in a draft and cannot be
    copied without loss; ``value`` is None then."""

    value: Any = None
    elsewhere: str = ""


class ValueTransformer(ast.NodeTransformer):
    """A transformer of syntax trees. It makes the last statement of a program store its value in HIDDEN. A program
    whose last statement has no value, for example a loop, is not changed."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Module) and node.body:
            match node.body[-1]:
                case ast.Assign(targets=[ast.Name()], value=ast.expr()) | ast.AnnAssign(value=ast.expr()) as bound:
                    bound.value = _store(bound.value)  # type: ignore[arg-type]  # the pattern excludes None
                case ast.Expr() as last:
                    last.value = _with_stored_value(last.value)
            ast.fix_missing_locations(node)
        return node


@contextlib.contextmanager
def recording_value(shell: Any, values: list[ProgramValue]) -> Iterator[None]:
    """Record the value of the program that runs inside the ``with`` block: add it to the list ``values`` if the program
    has a value."""
    transformer = ValueTransformer()
    shell.ast_transformers.append(transformer)
    try:
        yield
    finally:
        shell.ast_transformers[:] = [
            ast_transformer for ast_transformer in shell.ast_transformers if ast_transformer is not transformer
        ]
        if HIDDEN in shell.user_ns:
            values.append(ProgramValue(shell.user_ns.pop(HIDDEN)))


def with_assignment(code: str, name: str) -> str:
    """Return a program that runs ``code`` and also assigns the value with which ``code`` ends to the variable ``name``.
    Returns "" if ``code`` is not plain Python or ends without a value. If ``print`` shows the value, the new program
    computes it a second time."""
    tree = parse_or_empty(code)
    last = tree.body[-1] if tree.body else None
    match last:
        case ast.Assign(targets=[ast.Name(id=bound)]) | ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr()):
            return code if bound == name else f"{code.rstrip()}\n{name} = {bound}"
        case ast.Expr(value=value):
            ValueTransformer().visit(tree)
            stored = [
                node.value for node in ast.walk(tree) if isinstance(node, ast.NamedExpr) and node.target.id == HIDDEN
            ]
            if not stored:
                return ""
            if stored[0] is not value:
                return f"{code.rstrip()}\n{name} = {ast.unparse(stored[0])}"
            lines = code.split("\n")
            if last.col_offset:  # several statements in one line
                return ""
            return "\n".join([*lines[: last.lineno - 1], f"{name} = {ast.unparse(value)}", name])
    return ""


def _with_stored_value(expression: ast.expr) -> ast.expr:
    """Return the expression with code that stores its value. For a ``print`` or ``display`` with one argument that is
    not a constant, store the value of that argument."""
    if not (isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name)):
        return _store(expression)
    if expression.func.id not in DISPLAYS:
        return _store(expression)
    varying = [index for index, argument in enumerate(expression.args) if not isinstance(argument, ast.Constant)]
    if len(varying) == 1 or (not varying and len(expression.args) == 1):
        index = varying[0] if varying else 0
        expression.args[index] = _with_stored_part(expression.args[index])
    return expression


def _with_stored_part(argument: ast.expr) -> ast.expr:
    """Return the argument of a ``print`` with code that stores a value: the value in an f-string with one placeholder,
    the table in ``table.to_string()``, otherwise the argument itself."""
    match argument:
        case ast.JoinedStr(values=values):
            placeholders = [part for part in values if isinstance(part, ast.FormattedValue)]
            if len(placeholders) == 1:
                placeholders[0].value = _store(placeholders[0].value)
                return argument
        case ast.Call(func=ast.Attribute(value=owner, attr=attr) as method) if attr in AS_TEXT:
            method.value = _store(owner)
            return argument
        case ast.Starred():
            return argument
    return _store(argument)


def _store(value: ast.expr) -> ast.expr:
    return ast.NamedExpr(ast.Name(HIDDEN, ast.Store()), value)
