from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from agent_kernel.notebook import touched
from agent_kernel.notebook.touched import Touched


class Frame:
    """A table, as far as this goes: it can be referred to weakly."""


@pytest.fixture
def shell() -> Any:
    transform = TransformerManager()  # type: ignore[no-untyped-call]  # of IPython
    return SimpleNamespace(user_ns={}, transform_cell=transform.transform_cell)


CHANGES: list[tuple[Callable[[dict[str, Any]], object], bool]] = [
    (lambda ns: ns.update(other=2), True),
    (lambda ns: ns.update(count=ns["count"] + 0), True),
    (lambda ns: ns.update(count=4), False),
    (lambda ns: ns.update(df=Frame()), False),
    (lambda ns: ns.update(rows=list(ns["rows"])), False),
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
    remembered = Touched(shell)
    remembered.ran("t", "print(df, count, rows)\nif False:\n    made_later = 0\n%time 1")
    change(shell.user_ns)
    assert remembered.intact() == (["t"] if intact else [])


def test_a_value_that_does_not_equal_itself_is_the_same_while_it_is_that_object(shell: Any) -> None:
    shell.user_ns["missing"] = float("nan")
    remembered = Touched(shell)
    remembered.ran("t", "missing")
    assert remembered.intact() == ["t"]
    shell.user_ns["missing"] = float("nan")
    assert remembered.intact() == []


def test_code_that_is_no_python_counts_as_changed(shell: Any) -> None:
    remembered = Touched(shell)
    remembered.ran("t", "1 +")
    remembered.ran("t", "1")
    assert remembered.intact() == []


def test_objects_are_not_kept_alive_and_old_turns_are_forgotten(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "KEPT", 2)
    shell.user_ns["df"] = Frame()
    remembered = Touched(shell)
    for turn in "abc":
        remembered.ran(turn, "df")
    assert remembered.intact() == ["b", "c"]
    del shell.user_ns["df"]
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Frame)]
