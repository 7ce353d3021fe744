"""Finds side effects of Python code by static analysis: access to files and the network, started programs, and waiting.

The result is a hint for the user before code runs again, not a protection: code can hide its effects from the analysis.
The sandbox restricts the code in any case.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent_kernel.core.programs.syntax_tree import parse

Kind: TypeAlias = Literal["writes", "deletes", "network", "runs", "waits", "unreadable"]
_WRITES = {"write_text", "write_bytes", "savefig", "save", "savez", "savez_compressed", "savetxt", "tofile", "touch"}
_WRITES |= {"mkdir", "makedirs", "imwrite", "imsave", "copy", "copyfile", "copytree", "symlink", "extractall"}
_DELETES = {"remove", "unlink", "rmtree", "rmdir", "removedirs", "rename", "move"}
_OWNERS = {"os", "shutil", "pathlib"}
"""Modules whose functions count as effects although their names are ambiguous. Without one of these modules, a name
such as ``remove`` or ``copy`` may be a method of a list or a set."""
_AMBIGUOUS = {"remove", "copy", "rename", "move", "save"}
_NETWORK = ("requests", "httpx", "urllib", "urllib3", "aiohttp", "socket", "ftplib", "smtplib", "paramiko", "boto3")
_IMPORTS: dict[str, Kind] = {"subprocess": "runs", "multiprocessing": "runs", **dict.fromkeys(_NETWORK, "network")}
"""Effects of libraries, by the name of their top-level package."""
_SYSTEM = {"system", "popen", "spawnv", "spawnl", "execv", "execvp", "fork", "posix_spawn"}
_MODES = set("wax+")
MAX_NAMED = 80


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect. ``what`` is the source of the expression, shortened; ``line`` is its line number from 1."""

    kind: Kind
    what: str
    line: int


def effects(code: str) -> tuple[Effect, ...]:
    """Return the effects in the order of the code, each expression once. For code that does not parse, return one
    effect of the kind ``unreadable``."""
    tree = parse(code)
    if tree is None:
        return (Effect("unreadable", "it does not parse", 1),)
    unsorted = [effect for node in ast.walk(tree) for effect in _node_effects(node)]
    return tuple(sorted(dict.fromkeys(unsorted), key=lambda effect: effect.line))


def _node_effects(node: ast.AST) -> Iterator[Effect]:
    """Yield the effects of one node of the syntax tree, without those of the nodes below it."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            if (kind := _IMPORTS.get(name.partition(".")[0])) is not None:
                yield Effect(kind, f"import {name}", node.lineno)
    elif isinstance(node, ast.Call) and (kind := _kind(node)) is not None:
        yield Effect(kind, _short(ast.unparse(node)), node.lineno)


def _kind(call: ast.Call) -> Kind | None:
    """Return what kind of effect a call in Python code has, judged by the name of the function and its arguments; None
    if no effect is known."""
    name, owner = _function_name(call.func)
    if any(isinstance(word, ast.Constant) and _is_url(word.value) for word in ast.walk(call)):
        return "network"
    if name == "open" and _opens_to_write(call):
        return "writes"
    if name in _AMBIGUOUS and owner not in _OWNERS | {"np", "numpy", "plt", "torch", "image", "img", "anim", "ani"}:
        return None
    if name in _DELETES:
        return "deletes"
    if name in _WRITES or (name.startswith("to_") and _names_a_file(call)) or (name == "dump" and len(call.args) > 1):
        return "writes"
    if owner == "os" and name in _SYSTEM:
        return "runs"
    if name == "sleep":
        return "waits"
    return None


def _function_name(function: ast.expr) -> tuple[str, str]:
    """Return (name of the called function, name before its dot); the second value is empty if the name has no dot."""
    if isinstance(function, ast.Attribute):
        return function.attr, function.value.id if isinstance(function.value, ast.Name) else ""
    return (function.id, "") if isinstance(function, ast.Name) else ("", "")


def _opens_to_write(call: ast.Call) -> bool:
    """Return whether the call may open a file for writing.

    The mode is the first argument of Path.open, but the second of the function open. If the mode is not a constant, the
    call may write.
    """
    by_keyword = [word.value for word in call.keywords if word.arg == "mode"]
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    modes = by_keyword or call.args[place : place + 1]
    if not modes:
        return False
    mode = modes[0]
    return not isinstance(mode, ast.Constant) or bool(_MODES & set(str(mode.value)))


def _names_a_file(call: ast.Call) -> bool:
    """Return whether a ``to_...`` call writes a file: ``df.to_csv("a.csv")`` does, ``df.to_csv()`` returns text
    instead."""
    name, _ = _function_name(call.func)
    writers = {"csv", "excel", "parquet", "json", "pickle", "feather", "hdf", "sql", "stata", "html", "xml", "markdown"}
    has_path_keyword = any(word.arg in ("path", "path_or_buf", "excel_writer", "buf", "con") for word in call.keywords)
    return name.removeprefix("to_") in writers and bool(call.args or has_path_keyword)


def _is_url(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://", "ftp://", "s3://", "gs://"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAMED else line[: MAX_NAMED - 1] + "…"
