"""A JSON document that holds the rows of a table is read as a data frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.file_facts.json_table import json_lines_table, json_table


def _read(document: Any) -> pd.DataFrame:
    """Read the document as the code does that the description gives."""
    table = json_table(document)
    assert table is not None
    code = f"{table.before}json.loads(text){table.after}"
    frame = eval(code, {"pd": pd, "json": json, "text": json.dumps(document)})
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame.columns) == sorted(table.cells)
    return frame


def test_a_list_of_objects_has_one_row_for_each() -> None:
    frame = _read([{"name": "Kim", "joined": "2024-05-01"}, {"name": "Lee", "joined": "2023-01-15", "left": True}])
    assert frame["name"].tolist() == ["Kim", "Lee"]
    assert frame["joined"].dt.year.tolist() == [2024, 2023]
    assert frame["left"].isna().tolist() == [True, False]


def test_the_keys_of_an_object_in_a_row_are_columns_with_a_dot() -> None:
    frame = _read([{"id": at, "customer": {"name": name}} for at, name in enumerate(["Ada", "Bob"])])
    assert frame["customer.name"].tolist() == ["Ada", "Bob"]


def test_the_values_beside_the_list_of_rows_are_columns_too() -> None:
    frame = _read({"unit": "kWh", "meters": [{"id": "m1", "value": 3}, {"id": "m2", "value": 5}]})
    assert frame["unit"].tolist() == ["kWh", "kWh"]
    assert frame["value"].sum() == 8


def test_a_value_in_an_object_beside_the_rows_is_a_column_too() -> None:
    frame = _read({"meta": {"page": 1}, "items": [{"id": 1, "by": {"name": "Ada"}}, {"id": 2, "by": {"name": "Bob"}}]})
    assert frame["meta.page"].tolist() == [1, 1]
    assert frame["by.name"].tolist() == ["Ada", "Bob"]


def test_the_keys_of_an_object_of_similar_objects_are_a_column() -> None:
    frame = _read({city: {"area": area, "river": None} for city, area in (("Bonn", 141), ("Cork", 187), ("Graz", 127))})
    assert frame.loc[frame["area"].idxmax(), "name"] == "Cork"


def test_objects_in_similar_objects_are_columns_with_a_dot() -> None:
    frame = _read({at: {"severity": "sev1", "timeline": {"opened": f"2025-01-0{at}T08:00:00Z"}} for at in "123"})
    assert frame["name"].tolist() == ["1", "2", "3"]
    assert frame["timeline.opened"].dt.day.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "kind"), [("2024-05-01", "date"), ("2024-05-01T10:00:00Z", "date"), ("May 2024", "str")]
)
def test_dates_of_one_form_are_read_as_dates(text: str, kind: str) -> None:
    table = json_table([{"a": 1, "at": text}] * 2)
    assert table is not None
    assert table.kinds["at"] == kind
    _read([{"a": 1, "at": text}] * 2)
    assert _kind_of_both(text, "2024-05-01T10:00:00+02:00") == "str"


def _kind_of_both(first: str, second: str) -> str:
    table = json_table([{"a": 1, "at": first}, {"a": 1, "at": second}])
    assert table is not None
    return table.kinds["at"]


def test_lines_of_json_are_rows_and_their_objects_are_columns(tmp_path: Path) -> None:
    documents = [
        {"id": at, "to": {"land": land}, "day": f"2025-02-0{at}", "made_at": f"2025-02-0{at}T10:00:00Z"}
        for at, land in ((1, "FR"), (2, "DE"))
    ]
    path = tmp_path / "orders.jsonl"
    path.write_text("\n".join(map(json.dumps, [*documents, {"id": 3, "day": "2025-02-03"}])))
    table = json_lines_table(str(path), documents)
    assert table is not None
    frame = eval(table.before + table.after, {"pd": pd})
    assert frame["to.land"].tolist()[:2] == ["FR", "DE"]
    assert frame["day"].dt.day.tolist() == [1, 2, 3]
    assert frame["made_at"].dt.day.tolist()[:2] == [1, 2]


@pytest.mark.parametrize(
    "document",
    [
        {"host": "alpha", "port": 8417},
        {"a": {"x": 1}, "b": {"y": 2}, "c": {"z": 3}},
        [{"name": "Harbour", "vans": [{"km": 1}]}, {"name": "West", "vans": []}],
        {"id": 1, "rows": [{"id": 2, "v": 1}, {"id": 3, "v": 1}]},
        {"first": [{"a": 1, "b": 2}] * 2, "second": [{"a": 1, "b": 2}] * 2},
        [1, 2, 3],
        [{"only": 1}],
        [],
        {},
        None,
    ],
)
def test_other_documents_are_no_tables(document: Any) -> None:
    assert json_table(document) is None


def test_a_column_of_lists_is_named_as_such() -> None:
    table = json_table([{"team": "A", "scores": [1, 2]}, {"team": "B", "scores": []}])
    assert table is not None
    assert table.kinds == {"team": "str", "scores": "list"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(0, 1) | st.sampled_from(["a", "2024-05-01", "", "x.y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_the_code_for_any_document_runs_and_has_the_columns_that_are_described(document: Any) -> None:
    if json_table(document) is not None:
        _read(document)
