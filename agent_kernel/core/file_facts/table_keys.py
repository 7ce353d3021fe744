"""Finds the columns by which the tables of several files belong together, and writes the statement that merges them.

A small model often computes with the columns of two tables as if their rows were in the same order. The functions have
no side effects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agent_kernel.core.file_facts.column_types import MISSING
from agent_kernel.core.file_facts.quoted_text import one_line, shorten

MIN_COMMON = 0.5
"""Minimum share of the distinct values of a column that the key must have too. Some rows may lack a partner."""
MIN_KEYS = 2
"""Minimum number of distinct values of a key."""
MERGED = "_merged"
"""Ending of the name of the variable for the merged table."""
MAX_COLUMNS = 40
"""Maximum number of columns of the merged table that are listed."""


class KeyColumns(NamedTuple):
    """The columns of a table that may be keys: those with texts and whole numbers. ``table`` is the variable to which
    code reads the table; ``labels`` are the labels of all columns, and ``cells`` the cells of the columns that may be
    keys. ``numbers`` are the labels of those with whole numbers."""

    table: str
    labels: Sequence[str]
    cells: Mapping[str, Sequence[str]]
    numbers: Collection[str] = ()


class Merge(NamedTuple):
    """The column ``label`` of a table has values of the column ``key`` of the table ``other``, where each value is in
    only one row, apart from rows that are repeated. ``folds`` means that the values differ in case or in spaces, and
    ``has_gaps`` that the key is missing in some rows."""

    score: float
    label: str
    key: str
    folds: bool
    has_gaps: bool
    other: KeyColumns

    def added_labels(self) -> list[str]:
        """Return the labels of the columns that the merge adds. A key that both tables have under the same label is one
        column."""
        own = self.key if self.key == self.label and not self.folds else None
        return [label for label in self.other.labels if label != own]


def table_name(name: str) -> str:
    """Return the name of the variable to which code reads the file ``name``; an empty string if there is none."""
    table = re.sub(r"\W+", "_", Path(name).stem, flags=re.ASCII).strip("_").lower()
    return table if table.isidentifier() else ""


def key_columns(
    name: str, columns: Sequence[str], cells: Sequence[Sequence[str]], kinds: Sequence[str]
) -> list[KeyColumns]:
    """Return the columns of a table by which it may belong to another one. Code reads the table to a variable with the
    name of the file or sheet ``name``. ``cells`` has all cells of each column, and ``kinds`` has the types of the
    columns."""
    typed = list(zip(columns, cells, kinds, strict=True))
    may_be_keys = {label: column for label, column, kind in typed if kind in ("str", "int64")}
    numbers = {label for label, _, kind in typed if kind == "int64"}
    table = table_name(name)
    return [KeyColumns(table, columns, may_be_keys, numbers)] if table and may_be_keys else []


def describe_merge(tables: Sequence[KeyColumns]) -> str:
    """Return the lines that say how code merges the tables and which columns they then have; an empty string if the
    tables have no common key, or if two of them have the same name. Only tables are merged that are connected with the
    first one to which no other refers."""
    if len({one.table for one in tables}) < len(tables):
        return ""
    merges = {
        one.table: [merge for other in tables if other is not one and (merge := _best(one, other))] for one in tables
    }
    keyed = {merge.other.table for found in merges.values() for merge in found}
    connected = sorted((one for one in tables if merges[one.table]), key=lambda one: one.table in keyed)
    if not connected:
        return ""
    start = connected[0]
    expression, columns = start.table, list(start.labels)
    # The labels that the columns of each table have in the merged table.
    joined = {start.table: {label: label for label in start.labels}}
    waiting = [(start.table, merge) for merge in merges[start.table]]
    while waiting:
        table, merge = waiting.pop(0)
        other = merge.other.table
        if other in joined:
            continue
        merge = merge._replace(label=joined[table][merge.label])
        expression += _merge_call(merge, set(columns))
        added = {label: f"{label}_{other}" if label in columns else label for label in merge.added_labels()}
        columns += added.values()
        joined[other] = {merge.key: merge.label} | added
        waiting += [(other, further) for further in merges[other]]
    if "\\" in expression:
        return ""
    name = f"{start.table}{MERGED}"
    # A label may contain a line end, after which a text would pass for a fact.
    listed = ", ".join(one_line(shorten(column)) for column in columns[:MAX_COLUMNS])
    line = f"{' and '.join(joined)} have common values. Merge them first: {name} = {expression}"
    return f"{line}\n{name} then has the columns {listed}"


def _merge_call(merge: Merge, labels: set[str]) -> str:
    """Return the call of ``merge`` for a table with ``labels``."""
    label, key = merge.label, merge.key
    suffixes = f", suffixes=('', '_{merge.other.table}')" if labels & set(merge.added_labels()) else ""
    # A missing value would be a partner of every other missing value.
    complete = f".dropna(subset={key!r})" if merge.has_gaps else ""
    other = f"{merge.other.table}{complete}.drop_duplicates({key!r})"
    if merge.folds:
        name = "key" if "key" not in labels.union(merge.other.labels) else "merge_key"
        left = f".assign({name}=lambda t: t[{label!r}].str.strip().str.lower())"
        right = f"{other}.assign({name}=lambda t: t[{key!r}].str.strip().str.lower())"
        return f"{left}.merge({right}, on={name!r}, how='left'{suffixes}).drop(columns={name!r})"
    on = f"on={key!r}" if key == label else f"left_on={label!r}, right_on={key!r}"
    return f".merge({other}, {on}, how='left'{suffixes})"


def _best(one: KeyColumns, other: KeyColumns) -> Merge | None:
    """Return the best key of ``other`` for a column of ``one``; None if there is none."""
    return max(_candidates(one, other), key=lambda merge: merge.score, default=None)


def _candidates(one: KeyColumns, other: KeyColumns) -> Iterator[Merge]:
    rows = list(set(zip(*other.cells.values(), strict=True)))
    keys: dict[str, set[str]] = {}
    for at, key in enumerate(other.cells):
        present = [row[at] for row in rows if row[at] not in MISSING]
        # Each value must be in one row, apart from rows that are repeated as a whole.
        if MIN_KEYS <= len(present) == len(set(present)):
            keys[key] = set(present)
    folded_keys = {key: set(map(_fold, values)) for key, values in keys.items()}
    for label, cells in one.cells.items():
        values = set(cells) - MISSING
        folded = set(map(_fold, values))
        for key, known in keys.items():
            is_number = label in one.numbers
            if is_number != (key in other.numbers) or not values:
                continue
            exact, alike = values & known, folded & folded_keys[key]
            # Folding values reduces their number, so shares are compared. pandas has no text of a number to fold.
            is_better = len(alike) * len(values) > len(exact) * len(folded)
            folds = is_better and not is_number and len(folded_keys[key]) == len(known)
            share = len(alike) / len(folded) if folds else len(exact) / len(values)
            same_name = _letters(label) == _letters(key)
            # Whole numbers from 1 are common to many columns, so numbers need equal names.
            if share >= MIN_COMMON and (same_name or not is_number):
                has_gaps = not MISSING.isdisjoint(other.cells[key])
                yield Merge(share + same_name, label, key, folds, has_gaps, other)


def _fold(cell: str) -> str:
    return cell.strip().lower()


def _letters(label: str) -> str:
    return "".join(char for char in label.casefold() if char.isalnum())
