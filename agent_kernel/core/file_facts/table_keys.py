"""Finds the columns by which the tables of several files belong together, and writes the statement that merges them.

A small model often computes with the columns of two tables as if their rows were in the same order. The functions have
no side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agent_kernel.core.file_facts.column_types import MISSING

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
    keys."""

    table: str
    labels: Sequence[str]
    cells: Mapping[str, Sequence[str]]


class Merge(NamedTuple):
    """The column ``label`` of a table has values of the column ``key`` of the table ``other``, where each value is in
    only one row, apart from rows that are repeated. ``folds`` means that the values differ in case or in spaces."""

    score: float
    label: str
    key: str
    folds: bool
    other: KeyColumns

    def added_labels(self) -> list[str]:
        """Return the labels of the columns that the merge adds. A key that both tables have under the same label is one
        column."""
        own = self.key if self.key == self.label and not self.folds else None
        return [label for label in self.other.labels if label != own]


def describe_merge(tables: Sequence[KeyColumns]) -> str:
    """Return the lines that say how code merges the tables and which columns they then have; an empty string if the
    tables have no common key. Only tables are merged that are connected with the first one to which no other refers."""
    merges = {
        one.table: [merge for other in tables if other is not one and (merge := _best(one, other))] for one in tables
    }
    keyed = {merge.other.table for found in merges.values() for merge in found}
    connected = sorted((one for one in tables if merges[one.table]), key=lambda one: one.table in keyed)
    if not connected:
        return ""
    start = connected[0]
    expression, labels, joined, columns = start.table, set(start.labels), [start.table], list(start.labels)
    waiting = list(merges[start.table])
    while waiting:
        merge = waiting.pop(0)
        if merge.other.table in joined:
            continue
        expression += _merge_call(merge, labels)
        added = merge.added_labels()
        columns += [f"{label}_{merge.other.table}" if label in labels else label for label in added]
        labels |= set(added)
        joined.append(merge.other.table)
        waiting += merges[merge.other.table]
    if "\\" in expression:
        return ""
    name = f"{start.table}{MERGED}"
    listed = ", ".join(columns[:MAX_COLUMNS])
    line = f"{' and '.join(joined)} have common values. Merge them first: {name} = {expression}"
    return f"{line}\n{name} then has the columns {listed}"


def _merge_call(merge: Merge, labels: set[str]) -> str:
    """Return the call of ``merge`` for a table with ``labels``."""
    other, key = merge.other.table, merge.key
    suffixes = f", suffixes=('', '_{other}')" if labels & set(merge.added_labels()) else ""
    if merge.folds:
        name = "key" if "key" not in labels.union(merge.other.labels) else "merge_key"
        left = f".assign({name}=lambda t: t[{merge.label!r}].str.strip().str.lower())"
        right = f"{other}.drop_duplicates({key!r}).assign({name}=lambda t: t[{key!r}].str.strip().str.lower())"
        return f"{left}.merge({right}, on={name!r}, how='left'{suffixes}).drop(columns={name!r})"
    on = f"on={key!r}" if key == merge.label else f"left_on={merge.label!r}, right_on={key!r}"
    return f".merge({other}.drop_duplicates({key!r}), {on}, how='left'{suffixes})"


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
            exact, alike = values & known, folded & folded_keys[key]
            # Folding values reduces their number, so shares are compared.
            folds = len(folded_keys[key]) == len(known) and len(alike) * len(values) > len(exact) * len(folded)
            common, share = (alike, len(alike) / len(folded)) if folds else (exact, len(exact) / max(len(values), 1))
            same_name = _letters(label) == _letters(key)
            # Whole numbers from 1 are common to many columns, so numbers need equal names.
            are_texts = any(not value.lstrip("-").isdecimal() for value in common)
            if share >= MIN_COMMON and (same_name or are_texts):
                yield Merge(share + same_name, label, key, folds, other)


def _fold(cell: str) -> str:
    return cell.strip().lower()


def _letters(label: str) -> str:
    return "".join(char for char in label.casefold() if char.isalnum())
