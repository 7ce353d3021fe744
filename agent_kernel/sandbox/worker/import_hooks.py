"""Runs hooks right after a library is imported, and provides modules without files. Standard library only."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

Hook = Callable[[types.ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """An import finder. ``hooks`` maps module names to functions that are called once after the module was imported.
    ``made`` maps names of modules without files to functions that fill the new module."""

    def __init__(self, hooks: dict[str, Hook], made: dict[str, Hook]) -> None:
        self._hooks = hooks
        self._made = made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._made:
            return importlib.machinery.ModuleSpec(fullname, SyntheticLoader(self._made[fullname]))
        hook = self._hooks.pop(fullname, None)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if hook else None
        if hook is not None and spec is not None and spec.loader is not None:
            spec.loader = HookedLoader(spec.loader, hook)
        return spec


class SyntheticLoader(importlib.abc.Loader):
    def __init__(self, make: Hook) -> None:
        self._make = make

    def exec_module(self, module: types.ModuleType) -> None:
        self._make(module)


class HookedLoader(importlib.abc.Loader):
    """Runs the library's own loader, then the hook. If the hook fails, for example because the library has changed, the
    library works without the hook's additions, and the reason is written to standard error.
    """

    def __init__(self, loader: Any, hook: Hook) -> None:
        self._loader = loader
        self._hook = hook

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        created: types.ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        try:
            self._hook(module)
        except Exception as error:  # noqa: BLE001 - a changed library may raise anything; the code runs without it
            sys.stderr.write(f"The additions to {module.__name__} failed: {type(error).__name__}: {error}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
