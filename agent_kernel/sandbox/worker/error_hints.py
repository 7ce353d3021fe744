"""Writes hints about an error that its traceback does not contain: the columns of a table, names that are similar to a
wrong name, the files of a folder. Standard library only.

A model uses these hints to correct its program; without them it often repeats the line that failed.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_FACTS = 400
MAX_NAMES = 20
MAX_LOOKED_AT = 5_000
"""Maximum number of names, keys, files or variables that are examined; a larger object is described by its first
entries."""
PACKAGES = ("pandas", "numpy", "polars", "matplotlib", "seaborn", "plotly", "scipy", "sklearn", "statsmodels")
SIZES = re.compile(r"shape|length|dimension|broadcast|align|size", re.IGNORECASE)


def describe_error(error: BaseException) -> str:
    """Return one line of hints about the error, at most MAX_FACTS characters; empty if there is no hint.

    No code of the program's own classes runs: only objects of exactly the types dict, DataFrame, Series, ndarray and
    module are read, and only labels that are exactly str or int."""
    try:
        line = " ".join(_facts(error))
    except Exception:  # noqa: BLE001  an error of a description must not replace the error that it describes
        return ""
    return line if len(line) <= MAX_FACTS else f"{line[: MAX_FACTS - 3]}..."


def _facts(error: BaseException) -> Iterator[str]:
    line, scope, libraries = _failed_line(error)
    names = _used_names(line, scope)
    if isinstance(error, ModuleNotFoundError):
        yield from _module_hints(error)
    elif isinstance(error, FileNotFoundError):
        yield from _file_hints(error)
    elif isinstance(error, NameError):
        yield from _close("Names that exist", error.name, [name for name in scope if not name.startswith("_")])
    elif isinstance(error, AttributeError):
        yield from _attribute_hints(error)
    elif isinstance(error, KeyError):
        yield from _key_hints(error, names, libraries)
    elif isinstance(error, ValueError) and SIZES.search(_message(error)):
        yield from _sizes(names)
    elif isinstance(error, TypeError):
        yield from _column_types(names)


def _module_hints(error: ModuleNotFoundError) -> Iterator[str]:
    missing_module = error.name.partition(".")[0] if type(error.name) is str else ""
    if not missing_module or missing_module in sys.modules or importlib.util.find_spec(missing_module) is not None:
        return  # a part of an installed package is missing, and the error says so
    installed = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    yield f"{missing_module} is not installed. Installed are {', '.join(installed) or 'none of the usual packages'}."


def _file_hints(error: FileNotFoundError) -> Iterator[str]:
    if type(error.filename) is not str:
        return
    folder = os.path.dirname(error.filename) or "."
    try:
        with os.scandir(folder) as entries:
            files = [entry.name for entry, _ in zip(entries, range(MAX_LOOKED_AT), strict=False)]
    except OSError:
        yield f"There is no folder {folder}."
        return
    yield from _close(f"Files in {folder}", os.path.basename(error.filename), sorted(files))


def _attribute_hints(error: AttributeError) -> Iterator[str]:
    owner = error.obj
    if type(owner) is types.ModuleType:
        found: Iterable[str] = vars(owner)
        title = f"Names in {owner.__name__}"
    else:
        kind = type(owner)
        found = (name for base in type.mro(kind) for name in type.__getattribute__(base, "__dict__"))
        title = f"Attributes of {kind.__name__}"
    if _is_table(owner):
        yield f"Columns of the table: {_join(_columns(owner))}."
    public = [name for name in set(found) if not name.startswith("_")]
    if type(error.name) is str and (close := difflib.get_close_matches(error.name, public, 5)):
        yield f"{title} with a similar name: {_join(close)}."


def _key_hints(error: KeyError, names: Mapping[str, Any], libraries: list[types.FrameType]) -> Iterator[str]:
    tables = {name: value for name, value in names.items() if _is_table(value)}
    if not tables:
        # If a method of a library raised the error, for example groupby, the frames of the library contain the table.
        passed = [value for frame in libraries for value in _values(frame) if _is_table(value)]
        tables = dict(zip(("the table",), passed, strict=False))
    for name, table in list(tables.items())[:2]:
        yield f"Columns of {name}: {_join(_columns(table))}."
    missing_key = error.args[0] if error.args else ""
    for name, value in names.items():
        if type(value) is dict and not tables:
            yield from _close(f"Keys of {name}", repr(missing_key) if type(missing_key) is str else "", _labels(value))


def _sizes(names: Mapping[str, Any]) -> Iterator[str]:
    packages = {"ndarray": "numpy", "DataFrame": "pandas", "Series": "pandas"}
    for name, value in list(names.items())[:8]:
        if any(_is_exactly(value, package, kind) for kind, package in packages.items()):
            yield f"{name} has the shape {value.shape}."
        elif type(value) in (list, tuple):
            yield f"{name} has {len(value)} items."


def _column_types(names: Mapping[str, Any]) -> Iterator[str]:
    for name, value in names.items():
        if _is_table(value):
            kinds = [f"{label} {kind}" for label, kind in zip(_columns(value), value.dtypes, strict=False)]
            yield f"Types of the columns of {name}: {_join(kinds)}."
        elif _is_exactly(value, "pandas", "Series"):
            yield f"{name} has the type {value.dtype}."


def _failed_line(error: BaseException) -> tuple[str, Mapping[str, Any], list[types.FrameType]]:
    """Return (the line of the program that failed, the variables that it can use, the frames of libraries that it
    called). Frames belong to libraries if their file exists; the program has no file."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    summaries = traceback.extract_tb(error.__traceback__)
    for at in reversed(range(len(frames))):
        if summaries[at].line and not os.path.exists(summaries[at].filename):
            return str(summaries[at].line), {**frames[at].f_globals, **frames[at].f_locals}, frames[at + 1 :]
    return "", {}, []


def _used_names(line: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that the line names, with their values, in the order of the line."""
    try:
        nodes = [node for node in ast.walk(ast.parse(line.strip())) if isinstance(node, ast.Name)]
        names = [node.id for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset))]
    except (SyntaxError, ValueError, RecursionError):
        names = re.findall(r"[^\W\d]\w*", line)  # the line is a part of a statement
    return {name: scope[name] for name in dict.fromkeys(names) if name in scope}


def _message(error: BaseException) -> str:
    """Return the text arguments of the error, joined. ``str(error)`` is not used, because it could call the repr of an
    argument."""
    return " ".join(part for part in error.args if type(part) is str)


def _values(frame: types.FrameType) -> list[Any]:
    return list(frame.f_locals.values())[:MAX_LOOKED_AT]


def _is_exactly(value: Any, package: str, kind: str) -> bool:
    return type(value) is getattr(sys.modules.get(package), kind, None)


def _is_table(value: Any) -> bool:
    return _is_exactly(value, "pandas", "DataFrame") or _is_exactly(value, "polars", "DataFrame")


def _columns(table: Any) -> list[str]:
    return _labels(table.columns)


def _labels(labels: Iterable[Any]) -> list[str]:
    looked_at = (label for label, _ in zip(labels, range(MAX_LOOKED_AT), strict=False))
    return [repr(label) for label in looked_at if type(label) in (str, int)]


def _close(title: str, target: Any, names: Iterable[str]) -> Iterator[str]:
    """Yield one line that lists the names that are similar to ``target``; if none is similar, the first names."""
    names = [name for name, _ in zip(names, range(MAX_LOOKED_AT), strict=False)]
    close = difflib.get_close_matches(target, names, 5) if type(target) is str else []
    if listed := close or names[:MAX_NAMES]:
        yield f"{title}{' with a similar name' if close else ''}: {_join(listed)}."


def _join(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
