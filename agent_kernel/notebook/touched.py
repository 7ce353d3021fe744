"""Which variables the agent's code named, and whether they are still the same objects.

A stored answer must not stand for code whose effect is gone: a cell above may have made the variables anew since.
"""

from __future__ import annotations

import ast
import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

KEPT = 200
"""Turns of this life of the kernel; older ones count as gone."""
SMALL = (int, float, complex, bool, str, bytes, type(None))
NOTHING = object()


class Mark:
    """An object as it was, without keeping it alive. A small value is compared, what can not be referred to weakly (a
    list, a dict) is known by its address."""

    def __init__(self, value: object) -> None:
        self._value = value if isinstance(value, SMALL) else NOTHING
        self._address = id(value)
        self._kept: weakref.ref[object] | None = None
        with contextlib.suppress(TypeError):
            self._kept = weakref.ref(value)

    def fits(self, value: object) -> bool:
        if self._kept is not None:
            return self._kept() is value
        if self._value is not NOTHING:
            return id(value) == self._address or (type(value) is type(self._value) and value == self._value)  # NaN
        return id(value) == self._address


class Touched:
    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._turns: OrderedDict[str, dict[str, Mark] | None] = OrderedDict()

    def ran(self, turn: str, code: str) -> None:
        """The turn has run this code in the kernel, to its end or not."""
        names, before = self._names(code), self._turns.get(turn, {})
        namespace: Mapping[str, object] = self._shell.user_ns
        if names is None or before is None:
            self._turns[turn] = None
        else:
            self._turns[turn] = before | {name: Mark(namespace.get(name, NOTHING)) for name in names}
        self._turns.move_to_end(turn)
        while len(self._turns) > KEPT:
            self._turns.popitem(last=False)

    def intact(self) -> list[str]:
        """The turns whose variables are all what they were after it."""
        namespace: Mapping[str, object] = self._shell.user_ns
        return [
            turn
            for turn, marks in self._turns.items()
            if marks is not None and all(mark.fits(namespace.get(name, NOTHING)) for name, mark in marks.items())
        ]

    def _names(self, code: str) -> set[str] | None:
        """Every name in the code; None if it is no Python."""
        try:
            tree = ast.parse(self._shell.transform_cell(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return {name for node in ast.walk(tree) for name in _named(node)} - {"get_ipython"}


def _named(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [asname or name.partition(".")[0]]
    return []
