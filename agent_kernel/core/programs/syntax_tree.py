"""Parses Python code that a model or a person wrote. The code may be invalid."""

from __future__ import annotations

import ast

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions that Python and IPython raise for code that they cannot parse, because of its grammar, characters or
nesting depth."""


def parse(code: str) -> ast.Module | None:
    """Return the syntax tree of plain Python, or None if the code cannot be parsed."""
    try:
        return ast.parse(code)
    except UNPARSABLE:
        return None


def parse_or_empty(code: str) -> ast.Module:
    """Return the syntax tree of plain Python, or a module without statements if the code cannot be parsed."""
    return parse(code) or ast.Module([], [])


def unexpected_indent(code: str) -> int:
    """Return the number, from 1, of the first line with an unexpected indentation; 0 if the code has none or has
    another mistake."""
    try:
        ast.parse(code)
    except IndentationError as error:
        return (error.lineno or 0) if error.msg == "unexpected indent" else 0
    except UNPARSABLE:
        return 0
    return 0


def names_in(code: str) -> set[str]:
    """Return the names of variables in plain Python; none if the code cannot be parsed."""
    return {node.id for node in ast.walk(parse_or_empty(code)) if isinstance(node, ast.Name)}


def names_set(code: str) -> set[str]:
    """Return the names that the code assigns, imports, defines, or has as parameters."""
    nodes = list(ast.walk(parse_or_empty(code)))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return names | {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
