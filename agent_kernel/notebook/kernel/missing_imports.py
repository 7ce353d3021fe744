"""Adds imports that small models forget, as visible lines before their code.

A line is added only for a name that the code uses without binding it, that is missing in the user's namespace, and
whose module is installed. The name stays bound after the run, as with any import, and replaces no variable.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent_kernel.notebook.kernel.python_syntax import UNREADABLE

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "np": "import numpy as np",
        "pd": "import pandas as pd",
        "plt": "import matplotlib.pyplot as plt",
        "math": "import math",
        "json": "import json",
        "re": "import re",
        "os": "import os",
        "csv": "import csv",
        "datetime": "import datetime",
    }
)
FROM_DATETIME = "from datetime import datetime"
MEMBERS_OF_MODULE = {"datetime", "date", "time", "timedelta", "timezone", "tzinfo", "UTC", "MINYEAR", "MAXYEAR"}


def missing_imports(source: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return import lines to put before ``source``, which must be plain Python."""
    try:
        used = _unbound(symtable.symtable(source, "<agent>", "exec"))
    except UNREADABLE:
        return []
    lines = [
        FROM_DATETIME if name == "datetime" and _means_the_class(source) else line
        for name, line in KNOWN.items()
        if name in used and name not in namespace and not hasattr(builtins, name)
    ]
    return [line for line in lines if _is_installed(line)]


def _unbound(table: symtable.SymbolTable) -> set[str]:
    """Return the names that any scope of the code reads as globals and that the code itself does not bind."""
    top = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return _read_as_global(table) - top


def _read_as_global(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    return names.union(*(_read_as_global(child) for child in table.get_children()))


def _means_the_class(source: str) -> bool:
    """Return True if the code uses ``datetime`` as the class (``datetime.now()``, ``datetime(2024, 1, 1)``), False if
    it uses the module (``datetime.date``)."""
    nodes = list(ast.walk(ast.parse(source)))
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datetime"
    }
    return not attributes & MEMBERS_OF_MODULE


def _is_installed(line: str) -> bool:
    return importlib.util.find_spec(line.split()[1].partition(".")[0]) is not None
