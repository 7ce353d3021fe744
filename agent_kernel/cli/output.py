"""What the command shows: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
WIDE = 100_000
"""Columns of a reader that is no terminal: nothing is cut."""


@dataclass(frozen=True, slots=True)
class Column:
    """``form`` makes text of a value."""

    heading: str
    form: Callable[[Any], str] = str
    right: bool = False


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], *, as_json: bool, empty: str = "") -> None:
    """As JSON every key of a row is there, in a table those of ``columns``. ``empty`` is said to people (stderr) where
    there are no rows."""
    if as_json:
        print(json.dumps(list(rows), indent=2))
        return
    if not rows:
        if empty:
            print(empty, file=sys.stderr)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns.values():
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(column.form(row[key]))) for key, column in columns.items()))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def facts(values: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing with its properties."""
    if as_json:
        print(json.dumps(dict(values), indent=2))
        return
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        print(f"{name:<{width}}{printable(str(value))}")


def printable(text: str) -> str:
    """What a model or a page made up as a title can not move a terminal's cursor or change its colours."""
    return "".join(char if char.isprintable() else " " if char.isspace() else UNPRINTABLE for char in text)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def size(count: int) -> str:
    """1024 bytes are a KiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
