from __future__ import annotations

import datetime
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from agent_kernel.notebook.kernel import content_digest as content_digest_module
from agent_kernel.notebook.kernel import variable_fingerprints
from agent_kernel.notebook.kernel.content_digest import content_digest
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker


class Frame:
    """A stand-in for a table that weak references can refer to."""


@pytest.fixture
def shell() -> Any:
    transform = TransformerManager()  # type: ignore[no-untyped-call]  # of IPython
    return SimpleNamespace(user_ns={}, transform_cell=transform.transform_cell)


CHANGES: list[tuple[Callable[[dict[str, Any]], object], bool]] = [
    (lambda ns: ns.update(other=2), True),
    (lambda ns: ns.update(count=ns["count"] + 0), True),
    (lambda ns: ns.update(count=4), False),
    (lambda ns: ns.update(df=Frame()), False),
    (lambda ns: ns.update(rows=list(ns["rows"])), True),  # made anew with equal content
    (lambda ns: ns.update(rows=[1, 2.0]), False),
    (lambda ns: ns["rows"].append(3), True),
    (lambda ns: ns.pop("df"), False),
    (lambda ns: ns.update(made_later=1), False),
]


@pytest.mark.parametrize(("change", "intact"), CHANGES)
def test_a_turn_is_intact_while_the_names_in_its_code_mean_the_same_objects(
    shell: Any, change: Callable[[dict[str, Any]], object], intact: bool
) -> None:
    old = {"df": Frame(), "count": 3, "rows": [1, 2]}
    shell.user_ns.update(old)
    remembered = VariableTracker(shell)
    remembered.ran("t", "print(df, count, rows)\nif False:\n    made_later = 0\n%time 1")
    change(shell.user_ns)
    assert remembered.intact() == (["t"] if intact else [])


def test_a_value_that_does_not_equal_itself_is_the_same_while_it_is_that_object(shell: Any) -> None:
    shell.user_ns["missing"] = float("nan")
    remembered = VariableTracker(shell)
    remembered.ran("t", "missing")
    assert remembered.intact() == ["t"]
    shell.user_ns["missing"] = float("nan")
    assert remembered.intact() == []


def test_code_that_is_no_python_counts_as_changed(shell: Any) -> None:
    remembered = VariableTracker(shell)
    remembered.ran("t", "1 +")
    remembered.ran("t", "1")
    assert remembered.intact() == []


def test_objects_are_not_kept_alive_and_old_turns_are_forgotten(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_fingerprints, "KEPT", 2)
    shell.user_ns["df"] = Frame()
    remembered = VariableTracker(shell)
    for turn in "abc":
        remembered.ran(turn, "df")
    assert remembered.intact() == ["b", "c"]
    del shell.user_ns["df"]
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Frame)]


EQUAL: list[Callable[[], Any]] = [
    lambda: pd.DataFrame({"month": ["a", "b"], "rain": [1.0, None]}),
    lambda: pd.Series([1, 2], name="rain", index=["x", "y"]),
    lambda: pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"])),
    lambda: np.arange(6).reshape(2, 3),
    lambda: {"rows": [1, (2.5, None)], "when": datetime.date(2026, 1, 1), "names": {"a", "b"}},
    lambda: [float("nan")],
]
OTHER: list[tuple[Any, Any]] = [
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [1, 2]})),
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1.0, 2.0]})),
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]}, index=[1, 0])),
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [2, 1]})),
    (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)),
    ([1, [2]], [[1], 2]),
    ([1], [True]),
    ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
]


@pytest.mark.parametrize("make", EQUAL)
def test_what_is_made_anew_with_equal_content_is_what_it_was(shell: Any, make: Callable[[], Any]) -> None:
    shell.user_ns["value"] = make()
    remembered = VariableTracker(shell)
    remembered.ran("t", "value")
    shell.user_ns["value"] = make()
    gc.collect()
    assert remembered.intact() == ["t"]


@pytest.mark.parametrize(("before", "after"), OTHER)
def test_other_content_is_not_what_it_was(shell: Any, before: Any, after: Any) -> None:
    shell.user_ns["value"] = before
    remembered = VariableTracker(shell)
    remembered.ran("t", "value")
    shell.user_ns["value"] = after
    assert remembered.find_changed("t") == ["value"]


def test_unknown_and_large_values_are_known_by_identity_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("it was asked")

        def __hash__(self) -> int:
            raise AssertionError("it was asked")

        def __repr__(self) -> str:
            raise AssertionError("it was asked")

    assert content_digest(Hostile()) == content_digest([Hostile()]) == ""
    assert content_digest(pd.DataFrame({"a": [Hostile()]})) == ""
    loop: list[Any] = []
    loop.append(loop)
    assert content_digest(loop) == ""
    monkeypatch.setattr(content_digest_module, "MAX_CELLS", 3)
    assert content_digest(pd.DataFrame({"a": range(4)})) == ""
    assert content_digest(pd.DataFrame({"a": range(3)})) != ""


def test_a_name_that_a_draft_binds_before_it_reads_it_says_nothing_about_the_kernel(shell: Any) -> None:
    shell.user_ns["df"] = Frame()
    remembered = VariableTracker(shell)
    code = "import math\nmeans = df\nmeans = means\ntotal += 1\nfor row in means: row"
    remembered.ran("drafted", code, drafted=True)
    remembered.ran("live", code)
    shell.user_ns["means"] = 5
    assert remembered.intact() == ["drafted"]
    shell.user_ns["total"] = 1
    assert remembered.find_changed("drafted") == ["total"]
