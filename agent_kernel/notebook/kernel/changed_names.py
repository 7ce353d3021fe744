"""Finds the variables that code created or changed by comparing the namespace before and after. Values are not compared
in full.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from agent_kernel.notebook.kernel.python_syntax import modified_in_place
from agent_kernel.notebook.kernel.variable_fingerprints import WeakMark

MAX_NAMES = 200


class NameChanges(NamedTuple):
    """Names that code changed in the user's namespace. ``new`` are names that did not exist before, ``deleted`` those
    that no longer exist. ``changed`` are names that existed before and were rebound, or whose value was modified in
    place. A modification in place is noticed only if the shape of the value or the code that ran shows it."""

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
    """The state of a namespace before code runs.

    ``mark`` creates, for each value, the object that recognises the value later. StrongMark keeps the values alive,
    which costs nothing in a forked process. WeakMark is for the kernel itself: values that the code releases are freed
    at once."""

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
        """Return the names that ``code``, which is plain Python, has changed. ``namespace`` is the namespace after it
        ran."""
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
    """Return properties of a value that are quick to read: the shape, columns and types of a table, the shape and type
    of an array, the length of a container. Returns None for other values."""
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
