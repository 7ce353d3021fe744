"""Tests that the statement for the merge of any tables runs and keeps each row of the first one once."""

from __future__ import annotations

from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.file_facts.table_keys import KeyColumns, describe_merge

CELLS = st.sampled_from(["Ada", "ada ", "Bob", "Eve", "7", "8", "N/A"])
LABELS = st.lists(st.sampled_from(["id", "name", "it's", "key", "Name", "a b"]), min_size=1, max_size=3, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> list[pd.DataFrame]:
    frames = []
    for _ in range(draw(st.integers(2, 3))):
        labels = draw(LABELS)
        rows = draw(st.lists(st.tuples(*[CELLS] * len(labels)), min_size=1, max_size=6))
        frames.append(pd.DataFrame(rows, columns=labels))
    return frames


@given(tables())
def test_the_statement_keeps_each_row_and_has_the_columns_that_are_listed(frames: list[pd.DataFrame]) -> None:
    names: dict[str, Any] = dict(zip("abc", frames, strict=False))
    keys = [
        KeyColumns(name, list(frame), {label: frame[label].to_list() for label in frame})
        for name, frame in names.items()
    ]
    told = describe_merge(keys)
    if not told:
        return
    line, columns = told.split("\n")
    statement = line.partition("Merge them first: ")[2]
    first = statement.partition("_merged")[0]
    exec(statement, names)
    merged = names[f"{first}_merged"]
    assert len(merged) == len(names[first])
    listed = columns.partition(" columns ")[2].split(", ")
    assert list(merged) == listed
