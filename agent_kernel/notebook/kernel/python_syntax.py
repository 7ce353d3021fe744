"""Reads the Python code of cells and programs: converts IPython syntax to plain Python, and finds statements and the
names that code uses.

Code is parsed, never run.
"""

from __future__ import annotations

import ast
from typing import Any

from agent_kernel.core.programs.syntax_tree import UNPARSABLE, parse_or_empty

MUTATORS = {"add", "append", "clear", "discard", "extend", "fill", "insert", "pop", "popitem", "remove", "reverse"}
MUTATORS |= {"setdefault", "sort", "update"}
"""Methods of lists, dictionaries, sets and arrays that modify the object in place."""


def to_plain_python(shell: Any, code: str) -> str:
    """Transform IPython syntax to plain Python. Code IPython cannot parse is returned unchanged; running it raises
    the error."""
    try:
        return str(shell.transform_cell(code))
    except UNPARSABLE:
        return code


def smallest_statement(tree: ast.Module, line: int) -> ast.stmt | None:
    """Return the innermost statement that contains line number ``line``, or None if there is none."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    around = (node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno))
    return min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)


def loop_names(code: str) -> set[str]:
    """Return the names that the code binds as loop variables and in no other way. ``code`` has no IPython syntax."""
    tree = parse_or_empty(code)
    loops = [node.target for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor)]
    targets = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Name)]
    others = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in targets
    }
    return {node.id for node in targets} - others


def modified_in_place(code: str) -> set[str]:
    """Return the names whose objects the code modifies in place: ``d[k] = v``, ``o.a = v``, ``x += 1``,
    ``l.append(v)``, ``inplace=True``."""
    return {name for node in ast.walk(parse_or_empty(code)) for target in _targets(node) if (name := _root(target))}


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return [target for target in targets if isinstance(target, ast.Subscript | ast.Attribute)]
        case ast.AugAssign(target=target):
            return [target]
        case ast.AnnAssign(target=ast.Subscript() | ast.Attribute() as target):
            return [target]
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), keywords=keywords):
            is_in_place = any(
                word.arg == "inplace" and getattr(word.value, "value", False) is True for word in keywords
            )
            return [owner] if attr in MUTATORS or is_in_place else []
    return []


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
