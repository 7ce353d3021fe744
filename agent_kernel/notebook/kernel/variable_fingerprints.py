"""Which variables the agent's code named, and whether they still are what they were.

A stored answer must not stand for code whose effect is gone: a cell above may have made the variables anew since. One
that was made anew with equal content is what it was.
"""

from __future__ import annotations

import ast
import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from agent_kernel.notebook.kernel.content_digest import content_digest

KEPT = 200
"""Turns of this life of the kernel; older ones count as gone."""
SMALL = (int, float, complex, bool, str, bytes, type(None))
NOTHING = object()


class WeakMark:
    """An object as it was, without keeping it alive. A small value is compared, what can not be referred to weakly (a
    list, a dict) is known by its address. With ``content``, another object of equal content fits too, as far as
    ``content_digest`` can tell."""

    def __init__(self, value: object, *, content: bool = False) -> None:
        self._value = value if isinstance(value, SMALL) else NOTHING
        self._address = id(value)
        self._content = content_digest(value) if content and self._value is NOTHING else ""
        self._kept: weakref.ref[object] | None = None
        with contextlib.suppress(TypeError):
            self._kept = weakref.ref(value)

    def fits(self, value: object) -> bool:
        if self._value is not NOTHING:
            return id(value) == self._address or (type(value) is type(self._value) and value == self._value)  # NaN
        same = self._kept() is value if self._kept is not None else id(value) == self._address
        return same or (bool(self._content) and content_digest(value) == self._content)


class VariableTracker:
    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._turns: OrderedDict[str, dict[str, WeakMark] | None] = OrderedDict()

    def ran(self, turn: str, code: str, *, drafted: bool = False) -> None:
        """The turn has run this code in the kernel, to its end or not; or, ``drafted``, in a draft of the kernel, where
        a name that the code binds before it reads it says nothing about the kernel."""
        names, before = self._names(code, read_only=drafted), self._turns.get(turn, {})
        namespace: Mapping[str, object] = self._shell.user_ns
        if names is None or before is None:
            self._turns[turn] = None
        else:
            marks = {name: WeakMark(namespace.get(name, NOTHING), content=True) for name in names}
            self._turns[turn] = before | marks
        self._turns.move_to_end(turn)
        while len(self._turns) > KEPT:
            self._turns.popitem(last=False)

    def intact(self) -> list[str]:
        """The turns whose variables are all what they were after it."""
        return [turn for turn in self._turns if self.changed(turn) == []]

    def changed(self, turn: str) -> list[str] | None:
        """The variables of a turn that are not what they were after it; None: it is not known."""
        namespace: Mapping[str, object] = self._shell.user_ns
        marks = self._turns.get(turn)
        if marks is None:
            return None
        return [name for name, mark in marks.items() if not mark.fits(namespace.get(name, NOTHING))]

    def _names(self, code: str, *, read_only: bool) -> set[str] | None:
        """Every name in the code, or those that it reads from outside; None if it is no Python."""
        try:
            tree = ast.parse(self._shell.transform_cell(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        bound = _bound_first(tree) if read_only else set()
        return {name for node in ast.walk(tree) for name in _named(node)} - bound - {"get_ipython"}


def _bound_first(tree: ast.Module) -> set[str]:
    """Names that top-level statements bind in whole before anything reads them."""
    read: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read |= {node.id for node in names if not isinstance(node.ctx, ast.Store)} - bound
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            read |= {statement.target.id} - bound
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef):
            stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            bound |= (stored | {name for node in ast.walk(statement) for name in _defined(node)}) - read
    return bound


def _defined(node: ast.AST) -> list[str]:
    return [] if isinstance(node, ast.Name) else _named(node)


def _named(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [asname or name.partition(".")[0]]
    return []
