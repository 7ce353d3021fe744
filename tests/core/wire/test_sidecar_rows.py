"""Tests sidecar rows that omit what follows from the row before: reading completes them, and a growing file does not
change earlier rows.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.wire.sidecar_rows import MAX_INHERITED, SETTINGS, compact_rows, expand_rows

values = st.sampled_from([True, 1, 1.0, "", "a", None, ["x"], ["x", "y"], "x" * (MAX_INHERITED + 1)])
names = st.sampled_from(["a", "b", ""])
records = st.dictionaries(st.sampled_from([*SETTINGS, "calls", "without"]), values, max_size=6)


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    ordinals = sorted(draw(st.sets(st.integers(1, 9), max_size=6)))
    return [
        {
            "id": f"t{ordinal}",
            "ordinal": ordinal,
            "state": draw(st.sampled_from(["committed", "failed"])),
            "reason": draw(names),
            "cell": draw(names),
            "epoch": draw(names),
            "where": draw(names),
            "model": draw(names),
            "opened": 1.0,
            "closed": draw(st.sampled_from([None, 2.0])),
            "usage": {},
            "record": draw(records),
            "since": 0,
            "segment": draw(st.integers(0, 1)),
        }
        for ordinal in ordinals
    ]


def items(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"seq": 2 * turn["ordinal"] + at, "turn": turn["id"], "time": 1.0} for turn in turns for at in (0, 1)]


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(turns())
def test_compact_rows_are_complete_again_when_they_are_expanded(rows: list[dict[str, Any]]) -> None:
    own = {"format": 3, "turns": rows, "items": items(rows)}
    compact = compact_rows(own)
    assert text(expand_rows(json.loads(json.dumps(compact)))) == text(own)
    assert json.dumps(compact_rows(expand_rows(compact))) == json.dumps(compact)


@given(turns())
def test_a_session_that_grows_changes_none_of_its_rows(rows: list[dict[str, Any]]) -> None:
    compact = compact_rows({"turns": rows, "items": items(rows)})
    fewer = compact_rows({"turns": rows[:-1], "items": items(rows[:-1])})
    assert compact["turns"][: len(fewer["turns"])] == fewer["turns"]
    assert compact["items"][: len(fewer["items"])] == fewer["items"]


def test_a_long_value_is_not_inherited_so_that_a_small_document_stays_a_small_session() -> None:
    long = ["x" * MAX_INHERITED]
    own = {"turns": [{"id": "t1", "record": {"tools": long}}, {"id": "t2"}], "items": []}
    assert [turn["record"] for turn in expand_rows(own)["turns"]] == [{"tools": long}, {}]


@pytest.mark.parametrize(
    "own",
    [
        None,
        [],
        {},
        {"turns": {}, "items": 1},
        {"turns": [1, None, {"record": 1}], "items": ["x", {"seq": "1"}, {}]},
        {"turns": [{"without": 1}, {"without": [1, {}]}, {"ordinal": "x"}, {}], "items": [{"turn": []}, {}]},
    ],
)
def test_what_is_no_row_is_left_for_the_reader_to_refuse(own: Any) -> None:
    expanded = expand_rows(own)
    assert type(expanded) is type(own)
