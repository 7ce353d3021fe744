"""Reads the syntax tree of a program and replaces parts of its text. The functions have no side effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias, TypeGuard

from agent_kernel.core.programs.syntax_tree import parse

MAX_CODE = 20_000
"""Maximum number of characters of a program that is changed."""
REDUCTIONS = frozenset({"mean", "median", "std", "var", "sum", "min", "max", "corr", "cov", "quantile", "skew", "sem"})
"""Methods of pandas that compute statistics."""
YEARS = range(1800, 2200)
"""Numbers that are years if dates are compared with them."""
LINE_END = re.compile(r"\r\n|\r|\n")
READ = re.compile(r"(?m)^\w+(?= = pd\.read_)|\bpd\.read_\w+\((?:'[^'\n]*'|\"[^\"\n]*\")")
"""Matches the variable to which code reads a file, and the beginning of the call with the path of the file."""
Edit: TypeAlias = tuple[int, int, str]
"""A replacement of a part of a program: (first character, character after the last, new text)."""


class ParsedProgram:
    """A program with its syntax tree, which is empty if the program cannot be parsed."""

    def __init__(self, code: str) -> None:
        self.code = code

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self._tree)) if self._tree is not None else []

    @cached_property
    def expressions(self) -> list[ast.expr]:
        return [node for node in self.nodes if isinstance(node, ast.expr)]

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The top-level statements of the program."""
        return self._tree.body if self._tree is not None else []

    @cached_property
    def assignments(self) -> list[tuple[ast.expr, ast.expr]]:
        """The first target and the value of each assignment. Assignments of one block are in their order."""
        return [(node.targets[0], node.value) for node in self.nodes if isinstance(node, ast.Assign)]

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The names that the program sets."""
        return frozenset(
            node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )

    @cached_property
    def code_without_tables(self) -> str:
        """The code without the names of the tables and the paths of the files, which may contain the name of a
        column."""
        tables = {node.value.id for node in self.nodes if is_column(node) and isinstance(node.value, ast.Name)}
        code = READ.sub("", self.code)
        return re.sub(rf"\b(?:{'|'.join(map(re.escape, tables))})\b", "", code) if tables else code

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return the start and the end offset of a node in the code."""
        return self._position(node.lineno, node.col_offset), self._position(
            node.end_lineno or 0, node.end_col_offset or 0
        )

    def source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.code[start:end]

    def arguments(self, call: ast.Call, *, without: Iterable[str] = ()) -> list[str]:
        """Return the source of each argument of a call, except the keyword arguments in ``without``."""
        dropped = set(without)
        keywords = [one for one in call.keywords if one.arg not in dropped]
        return [*map(self.source, call.args), *(self.code[slice(*self.span(one))] for one in keywords)]

    def apply_edits(self, edits: Iterable[Edit]) -> str:
        """Return the code with the edits applied. An edit inside a larger one is left out. Return an empty string if
        there is no edit, or if the result cannot be parsed."""
        code, last = self.code, len(self.code) + 1
        kept = [one for one in set(edits) if not any(_is_inside(one, other) for other in edits)]
        for start, end, new in sorted(kept, reverse=True):
            if end > last:
                return ""
            code, last = code[:start] + new + code[end:], start
        return code if kept and parse(code) is not None else ""

    @cached_property
    def _tree(self) -> ast.Module | None:
        return parse(self.code) if len(self.code) <= MAX_CODE else None

    @cached_property
    def line_starts(self) -> list[int]:
        """The position of the first character of each line, where lines end as in a syntax tree: not at a form feed, as
        they do for ``str.splitlines``."""
        return [0, *(match.end() for match in LINE_END.finditer(self.code))]

    def _position(self, line: int, offset: int) -> int:
        """Return the position of a character in the code. ``offset`` counts bytes, as positions in a syntax tree do."""
        start = self.line_starts[line - 1]
        return start + len(self.code[start : start + offset].encode()[:offset].decode(errors="ignore"))


def is_label(node: ast.expr) -> bool:
    """Return whether the expression is a string literal, as column labels are."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def letters_of(text: str) -> str:
    """Return the letters and digits of a label or of code in lower case, to compare texts that differ in notation."""
    return re.sub(r"[\W_]+", "", text).casefold()


def is_column(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Return whether the expression selects a column of a variable: ``t['a']``."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and is_label(node.slice)


def is_condition(node: ast.expr) -> bool:
    """Return whether the expression contains a comparison and thus selects rows. (An index may also be a sum, as in
    ``names['a'][i + 1]``.)"""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert))


def date_columns(program: ParsedProgram) -> Iterator[str]:
    """Yield the source of each column that the program reads as dates or converts to dates."""
    for target, call in program.assignments:
        if isinstance(call, ast.Call) and isinstance(target, ast.Name):
            parsed = (one.value for one in call.keywords if one.arg == "parse_dates")
            labels = (one for value in parsed if isinstance(value, ast.List) for one in value.elts)
            yield from (f"{target.id}[{program.source(label)}]" for label in labels)
        elif isinstance(call, ast.Call) and is_column(target) and ast.unparse(call.func) == "pd.to_datetime":
            yield program.source(target)


def _is_inside(inner: Edit, outer: Edit) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]
