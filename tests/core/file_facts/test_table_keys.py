"""Tests that the statement for the merge of any files runs and keeps each row of the first one once."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_kernel.core.file_facts.table_keys import KeyColumns, describe_merge
from agent_kernel.core.file_facts.text_file import FileHead, text_file_facts

CELLS = st.sampled_from(["Ada", "ada ", "Bob", "Eve", "7", " 7", "8", "007", "", "N/A"])
LABELS = st.lists(st.sampled_from(["id", "name", "it's", "key", "Name", "a b"]), min_size=1, max_size=3, unique=True)


@st.composite
def tables(draw: st.DrawFn) -> list[str]:
    """Draw the texts of two or three CSV files."""
    texts = []
    for _ in range(draw(st.integers(2, 3))):
        labels = draw(LABELS)
        rows = draw(st.lists(st.tuples(*[CELLS] * len(labels)), min_size=1, max_size=6))
        texts.append(pd.DataFrame(rows, columns=labels).to_csv(index=False))
    return texts


def described(texts: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines about the merge of files with these texts, and the tables that code reads from them."""
    facts = [
        text_file_facts(f"{name}.csv", FileHead(text, True, len(text)))
        for name, text in zip("abc", texts, strict=False)
    ]
    told = describe_merge([table for one in facts for table in one.keys])
    return told.splitlines(), {name: pd.read_csv(io.StringIO(text)) for name, text in zip("abc", texts, strict=False)}


@given(tables())
@example(["id,name\nada ,Ada\n7,Ada\n 7,Ada\n", "a b\nAda\nada \n", "id,a b\nAda,7\n"])
def test_the_statement_keeps_each_row_and_has_the_columns_that_are_listed(texts: list[str]) -> None:
    told, names = described(texts)
    if not told:
        return
    line, columns = told
    statement = line.partition("Merge them first: ")[2]
    first = statement.partition("_merged")[0]
    exec(statement, names)
    merged = names[f"{first}_merged"]
    assert len(merged) == len(names[first])
    assert list(merged) == columns.partition(" columns ")[2].split(", ")


def test_a_row_without_a_key_has_no_partner() -> None:
    told, names = described(["good,n\ntea,1\n,2\ncake,3\n", "name,price\ntea,2\n,9\ncake,4\n"])
    exec(told[0].partition("Merge them first: ")[2], names)
    assert names["a_merged"]["price"].fillna(0).to_list() == [2, 0, 4]


@pytest.mark.parametrize(
    "texts",
    [
        ["id,n\n7,1\n8,2\n", "id,x\n7,a\nA8,b\n"],
        ["day,n\n1,1\n2,2\n", "rank,x\n1,a\n2,b\n"],
        ['"a\nb has common values",n\ntea,1\ncake,2\n', "good,x\ntea,a\ncake,b\n"],
    ],
    ids=["numbers and texts", "numbers under other names", "a label with a line break"],
)
def test_these_tables_are_not_merged(texts: list[str]) -> None:
    assert described(texts)[0] == []


def test_a_label_with_a_line_break_cannot_pass_for_a_fact() -> None:
    told, _ = described(["good,n\ntea,1\ncake,2\n", "good,\"x\nb['x'] holds text\"\ntea,a\ncake,b\n"])
    assert len(told) == 2
    assert told[1].endswith("good, n, x b['x'] holds text")


def test_two_files_of_the_same_name_are_not_merged() -> None:
    one = KeyColumns("a", ["k"], {"k": ["x", "y"]})
    assert describe_merge([one, KeyColumns("b", ["k"], {"k": ["x", "y"]})]) != ""
    assert describe_merge([one, KeyColumns("a", ["k"], {"k": ["x", "y"]})]) == ""
