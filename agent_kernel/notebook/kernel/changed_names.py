"""Finds the variables that code created or changed by comparing the namespace before and after. Values are not compared
in full.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.notebook.kernel.variable_fingerprints import WeakMark

MUTATORS = {"add", "append", "clear", "discard", "extend", "fill", "insert", "pop", "popitem", "remove", "reverse"}
MUTATORS |= {"setdefault", "sort", "update"}
"""Methods of lists, dictionaries, sets and arrays that modify the object in place."""
MAX_NAMES = 200
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions that Python and IPython raise for code that they cannot parse, because of its grammar, characters or
nesting depth."""


@dataclass(frozen=True, slots=True)
class NameChanges:
    """Names that changed in the user's namespace. ``changed``: names that existed before and were rebound, or whose
    value was modified in place; the latter is noticed only if the shape of the value or the code that ran shows it."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.deleted)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.new, *self.changed, *self.deleted)


class StrongMark:
    """Identifies an object by its address, and keeps it alive so that no other object gets this address."""

    def __init__(self, value: object) -> None:
        self._value = value

    def fits(self, value: object) -> bool:
        return self._value is value


class NamespaceSnapshot:
    """A namespace before code runs. ``mark`` remembers a value: StrongMark where keeping values alive is free (in a
    fork), else WeakMark, so that values the code releases are freed at once."""

    def __init__(
        self,
        namespace: Mapping[str, Any],
        hidden: Iterable[str],
        mark: Callable[[object], StrongMark | WeakMark] = StrongMark,
    ) -> None:
        self._hidden = frozenset(hidden)
        self._marks = {name: mark(value) for name, value in namespace.items() if self._counts(name, value)}
        self._shapes = {name: cheap_facts(namespace[name]) for name in self._marks}

    def changes(self, namespace: Mapping[str, Any], code: str) -> NameChanges:
        """Compare with ``namespace`` after ``code``, which is plain Python, has run."""
        touched = modified_in_place(code)
        new, changed = [], []
        for name, value in namespace.items():
            if name not in self._marks:
                new += [name] if self._counts(name, value) else []
            elif not self._marks[name].fits(value) or name in touched or cheap_facts(value) != self._shapes[name]:
                changed.append(name)
        deleted = [name for name in self._marks if name not in namespace]
        return NameChanges(tuple(new[:MAX_NAMES]), tuple(changed[:MAX_NAMES]), tuple(deleted[:MAX_NAMES]))

    def _counts(self, name: str, value: Any) -> bool:
        return not name.startswith("_") and name not in self._hidden and not isinstance(value, types.ModuleType)


def cheap_facts(value: Any) -> object:
    """Return cheap facts of a value: size, columns, types. None if there are none."""
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
    """Transform IPython syntax to plain Python. Code IPython cannot parse is returned unchanged; running it raises
    the error."""
    try:
        return str(shell.transform_cell(code))
    except UNREADABLE:
        return code


def names_in(code: str) -> set[str]:
    """Return every name that plain Python reads or binds; empty if it cannot be parsed."""
    try:
        tree = ast.parse(code)
    except UNREADABLE:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def loop_names(code: str) -> set[str]:
    """Return names that plain Python binds only as loop variables."""
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


def modified_in_place(code: str) -> set[str]:
    """Return names whose objects the code modifies in place: ``d[k] = v``, ``o.a = v``, ``x += 1``, ``l.append(v)``,
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
