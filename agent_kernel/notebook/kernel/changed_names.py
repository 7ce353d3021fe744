"""Which variables a piece of code made or changed, by looking before and after; no value is compared in full."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.notebook.kernel.variable_fingerprints import WeakMark

MUTATORS = {"add", "append", "clear", "discard", "extend", "fill", "insert", "pop", "popitem", "remove", "reverse"}
MUTATORS |= {"setdefault", "sort", "update"}
"""Methods of lists, dictionaries, sets and arrays that change the object itself."""
MAX_NAMES = 200
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python and IPython raise of code that they can not read: of its grammar, its characters, its depth."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """Names of the person's namespace. ``changed`` existed before: bound anew, or changed in place, as far as that can
    be told from its shape and from the code."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.deleted)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.new, *self.changed, *self.deleted)


class StrongMark:
    """An object as it was, kept alive, so that no other takes its address."""

    def __init__(self, value: object) -> None:
        self._value = value

    def fits(self, value: object) -> bool:
        return self._value is value


class NamespaceSnapshot:
    """A namespace as it was. ``mark`` remembers a value: Held where that costs nothing (a fork), else Mark, so that
    what the code lets go of is gone at once."""

    def __init__(
        self,
        namespace: Mapping[str, Any],
        hidden: Iterable[str],
        mark: Callable[[object], StrongMark | WeakMark] = StrongMark,
    ) -> None:
        self._hidden = frozenset(hidden)
        self._marks = {name: mark(value) for name, value in namespace.items() if self._counts(name, value)}
        self._shapes = {name: shape(namespace[name]) for name in self._marks}

    def changes(self, namespace: Mapping[str, Any], code: str) -> NameChanges:
        """``code`` is plain Python that ran since."""
        touched = in_place(code)
        new, changed = [], []
        for name, value in namespace.items():
            if name not in self._marks:
                new += [name] if self._counts(name, value) else []
            elif not self._marks[name].fits(value) or name in touched or shape(value) != self._shapes[name]:
                changed.append(name)
        deleted = [name for name in self._marks if name not in namespace]
        return NameChanges(tuple(new[:MAX_NAMES]), tuple(changed[:MAX_NAMES]), tuple(deleted[:MAX_NAMES]))

    def _counts(self, name: str, value: Any) -> bool:
        return not name.startswith("_") and name not in self._hidden and not isinstance(value, types.ModuleType)


def shape(value: Any) -> object:
    """What is cheap to look at of an object: its size, columns, types. None where nothing is."""
    try:
        if type(value).__name__ in ("DataFrame", "GeoDataFrame"):
            return tuple(value.shape), tuple(map(str, value.columns)), tuple(map(str, value.dtypes))
        if hasattr(type(value), "shape") and hasattr(type(value), "dtype"):
            return tuple(value.shape), str(value.dtype)
        if type(value) in (list, dict, set, bytearray):
            return len(value)
    except Exception:  # noqa: BLE001  a person's object may raise anything
        return None
    return None


def to_plain_python(shell: Any, code: str) -> str:
    """The code without IPython's own syntax; as it is, where IPython can not read it: who runs it is told why."""
    try:
        return str(shell.transform_cell(code))
    except UNREADABLE:
        return code


def names_in(code: str) -> set[str]:
    """Every name that stands in plain Python, read or made; empty if it is none."""
    try:
        tree = ast.parse(code)
    except UNREADABLE:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def loop_names(code: str) -> set[str]:
    """Names that plain Python binds only as the variable of a loop."""
    try:
        tree = ast.parse(code)
    except UNREADABLE:
        return set()
    loops = [node.target for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor)]
    targets = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Name)]
    others = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in targets
    }
    return {node.id for node in targets} - others


def in_place(code: str) -> set[str]:
    """Names whose objects the code changes where they are: ``d[k] = v``, ``o.a = v``, ``x += 1``, ``l.append(v)``,
    ``inplace=True``."""
    try:
        tree = ast.parse(code)
    except UNREADABLE:
        return set()
    return {name for node in ast.walk(tree) for target in _targets(node) if (name := _root(target))}


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return [target for target in targets if isinstance(target, ast.Subscript | ast.Attribute)]
        case ast.AugAssign(target=target):
            return [target]
        case ast.AnnAssign(target=ast.Subscript() | ast.Attribute() as target):
            return [target]
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), keywords=keywords):
            kept = any(word.arg == "inplace" and getattr(word.value, "value", False) is True for word in keywords)
            return [owner] if attr in MUTATORS or kept else []
    return []


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
