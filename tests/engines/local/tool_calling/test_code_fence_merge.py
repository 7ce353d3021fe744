"""Tests which programs lack the merge of their tables."""

from __future__ import annotations

import pytest

from agent_kernel.core.file_facts.text_file import describe_file, head_of, text_file_facts
from agent_kernel.engines.local.tool_calling.code_fence_merge import find_missing_merge, find_missing_order
from tests.narrowing import not_none

READS = "sales = pd.read_csv('sales.csv')\ngoods = pd.read_csv('goods.csv')\n"
LINE = "sales_merged = sales.merge(goods.drop_duplicates('id'), left_on='good', right_on='id', how='left')"
FACTS = [f"Files: sales.csv: CSV read by ...\nsales and goods have common values. Merge them first: {LINE}"]


@pytest.mark.parametrize(
    ("code", "is_missing"),
    [
        ("print((sales['n'] * goods['price']).sum())", True),
        ("print((sales[sales['n'] > 1]['n'] * goods['price'].head(3)).sum())", False),
        ("print(sales['n'].sum())", True),
        ("print(sales['n'].sum(), goods['price'].mean())", False),
        ("print(sales[sales['good'].isin(goods['id'])])", False),
        ("both = pd.merge(sales, goods)\nprint(both['n'] * both['price'])", False),
        ("print(sales_merged['n'].sum())", True),
    ],
)
def test_a_program_that_combines_two_tables_without_their_merge_gets_it(code: str, is_missing: bool) -> None:
    missing = find_missing_merge(READS + code, READS, FACTS)
    assert (missing.line if missing else "") == (f"{LINE}\n" if is_missing else "")


def test_a_file_that_the_program_does_not_read_is_not_merged() -> None:
    first, _, _ = READS.partition("goods")
    assert find_missing_merge(f"{first}print(sales['n'].sum())", first, FACTS) is None
    assert find_missing_merge(f"{READS}print(sales['n'].sum())", first, FACTS) is None


@pytest.mark.parametrize(
    "line",
    [
        "sales_merged = sales.merge(goods.drop_duplicates(open('x').read()), on='id')",
        "sales_merged = __import__('os').system('id')",
        "sales_merged = sales.merge(goods.to_pickle('x'), on='id')",
        "sales_merged = sales.merge(other, on='id')",
    ],
)
def test_only_a_line_that_does_nothing_but_merge_these_tables_is_added(line: str) -> None:
    facts = [FACTS[0].replace(LINE, line)]
    assert find_missing_merge(READS + "print(sales['n'].sum())", READS, facts) is None


@pytest.mark.parametrize(
    ("code", "is_missing"),
    [
        ("print(faults['at'].diff().max())", True),
        ("print(faults['n'].rolling(7).mean().max())", True),
        ("faults = faults.sort_values('at')\nprint(faults['at'].diff().max())", False),
        ("print(faults.groupby(faults['at'].dt.month)['n'].sum().pct_change())", False),
        ("print(faults['n'].sum())", False),
    ],
)
def test_neighbouring_rows_are_in_the_order_of_their_dates(code: str, is_missing: bool) -> None:
    rows = b"at,n\n2024-02-01,1\n2024-01-05,2\n2024-03-01,4\n"
    head = not_none(head_of(rows, len(rows)))
    question = "What was the longest time between two consecutive faults?"
    facts = [f"Files: {describe_file('faults.csv', text_file_facts('faults.csv', head, question))}"]
    assert "sort_values" not in describe_file("f.csv", text_file_facts("f.csv", head, "Plot n, sorted by n."))
    reads = "faults = pd.read_csv('faults.csv', parse_dates=['at'])\n"
    missing = find_missing_order(reads + code, reads, facts)
    assert (missing is not None) == is_missing
    if missing:
        assert missing.line == "faults = faults.sort_values('at', ignore_index=True)\n"


def test_the_table_is_sorted_by_its_only_date_and_not_by_dates_that_begin_with_the_day() -> None:
    rows = b"due,at\n31.01.2024,2024-02-01\n30.01.2024,2024-01-05\n"
    head = not_none(head_of(rows, len(rows)))
    told = describe_file("faults.csv", text_file_facts("faults.csv", head, "The time between consecutive faults?"))
    assert "faults = faults.sort_values('at', ignore_index=True)" in told
