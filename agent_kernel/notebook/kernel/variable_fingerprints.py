"""Tracks which variables the model's code used, and whether they are still unchanged.

A stored answer must not be reused when the effect of its code is gone, for example because a cell above has recreated
the variables since. A variable recreated with equal content counts as unchanged.
"""

from __future__ import annotations

import ast
import contextlib
import weakref
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.programs.syntax_tree import UNPARSABLE
from agent_kernel.core.recent_entries import RecentEntries
from agent_kernel.notebook.kernel.content_digest import content_digest

KEPT = 200
"""Number of turns whose variables are remembered. The variables of older turns count as changed."""
SMALL = (int, float, complex, bool, str, bytes, type(None))
NOTHING = object()


class WeakMark:
    """Recognises an object later without keeping it alive. Small values are compared by value; objects that cannot be
    referenced weakly (lists, dicts) are compared by address. With ``content``, an object with equal content is
    recognised as well, if ``content_digest`` supports its type."""

    def __init__(self, value: object, *, content: bool = False) -> None:
        self._value = value if isinstance(value, SMALL) else NOTHING
        self._address = id(value)
        self._content = content_digest(value) if content and self._value is NOTHING else ""
        self._kept: weakref.ref[object] | None = None
        with contextlib.suppress(TypeError):
            self._kept = weakref.ref(value)

    def fits(self, value: object) -> bool:
        if self._value is not NOTHING:
            # NaN is not equal to itself.
            return id(value) == self._address or (type(value) is type(self._value) and value == self._value)
        same = self._kept() is value if self._kept is not None else id(value) == self._address
        return same or (bool(self._content) and content_digest(value) == self._content)


class VariableTracker:
    """Remembers, for each turn, which variables its code used, with a WeakMark of the value of each."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._turns = RecentEntries[str, dict[str, WeakMark] | None](KEPT)

    def ran(self, turn: str, code: str, *, drafted: bool = False) -> None:
        """Record the variables of code that a turn ran in the kernel, whether the code completed or not. With
        ``drafted``, the code ran in a draft; names that it binds before it reads them are then ignored, because they
        are not variables of the kernel."""
        names, before = self._names(code, read_only=drafted), self._turns.get(turn, {})
        namespace: Mapping[str, object] = self._shell.user_ns
        if names is None or before is None:
            self._turns[turn] = None
        else:
            marks = {name: WeakMark(namespace.get(name, NOTHING), content=True) for name in names}
            self._turns[turn] = before | marks

    def intact(self) -> list[str]:
        """Return the ids of the turns whose variables are unchanged since the turn ran."""
        return [turn for turn in self._turns if self.find_changed(turn) == []]

    def find_changed(self, turn: str) -> list[str] | None:
        """Return the variables of a turn that have changed since it ran, or None if that is unknown."""
        namespace: Mapping[str, object] = self._shell.user_ns
        marks = self._turns.get(turn)
        if marks is None:
            return None
        return [name for name, mark in marks.items() if not mark.fits(namespace.get(name, NOTHING))]

    def _names(self, code: str, *, read_only: bool) -> set[str] | None:
        """Return the names in the code; None if the code cannot be parsed. With ``read_only``, return only the names
        whose values come from outside the code."""
        try:
            tree = ast.parse(self._shell.transform_cell(code))
        except UNPARSABLE:
            return None
        bound = _bound_first(tree) if read_only else set()
        return {name for node in ast.walk(tree) for name in _list_names(node)} - bound - {"get_ipython"}


def _bound_first(tree: ast.Module) -> set[str]:
    """Return the names that statements at the top level bind before any code reads them."""
    read: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read |= {node.id for node in names if not isinstance(node.ctx, ast.Store)} - bound
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            read |= {statement.target.id} - bound
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef):
            stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            bound |= (stored | {name for node in ast.walk(statement) for name in _definition_names(node)}) - read
    return bound


def _definition_names(node: ast.AST) -> list[str]:
    return [] if isinstance(node, ast.Name) else _list_names(node)


def _list_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [asname or name.partition(".")[0]]
    return []
