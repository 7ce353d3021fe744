"""Prints the output of commands: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
WIDE = 100_000
"""Width of a table in characters if the output is not a terminal, so that nothing is cut."""

MIN_TEXT = 10
"""Width of a column of text, in characters, below which lines are longer than the terminal is wide."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``form`` converts a value to text; ``right`` aligns the column to the right."""

    heading: str
    form: Callable[[Any], str] = str
    right: bool = False


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], *, as_json: bool, empty: str = "") -> None:
    """Print rows. With ``as_json`` they are JSON with all keys, otherwise a table with the keys of ``columns``. If
    there are no rows, print the text ``empty`` to stderr instead of a table."""
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
    """Print the properties of one object: as JSON, or one property per line."""
    if as_json:
        print(json.dumps(dict(values), indent=2))
        return
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        print(f"{name:<{width}}{printable(str(value))}")


def printable(text: str) -> str:
    """Return the text without control characters, so that a title from a model or a web page cannot control the
    terminal."""
    return "".join(char if char.isprintable() else " " if char.isspace() else UNPRINTABLE for char in text)


def wrap(line: str, indentation: int = 0) -> str:
    """Break a line between words so that it fits the width of the terminal; the lines after the first are indented. If
    the output is not a terminal, return the line as it is."""
    if not sys.stdout.isatty():
        return line
    width = max(shutil.get_terminal_size().columns, indentation + MIN_TEXT)
    return textwrap.fill(line, width, subsequent_indent=" " * indentation, break_on_hyphens=False)


def moment(seconds: float) -> str:
    """Return the local time as text. Unlike ``datetime``, this function accepts times after the year 9999, which may be
    stored if the clock of a machine was wrong."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def turn_count(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def join(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def size(count: int) -> str:
    """Return a number of bytes as text, in B, KiB, MiB or GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
