"""Tests copies of variables between the kernel and the sandbox."""

from __future__ import annotations

import base64
import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.notebook.kernel import variable_transfer
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.sandbox.worker import variable_transfer as inside


class Thing:
    def __init__(self, value: int) -> None:
        self.value = value


class Exploding:
    def __reduce__(self) -> Any:
        raise RuntimeError("no")


class Evil:
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def transfer(value: Any) -> tuple[str, Any]:
    """Return the encoding of a variable, and the value that the sandbox reads."""
    [one] = variable_transfer.copy_variables(["value"], {"value": value}).variables
    found: dict[str, Any] = {}
    inside.give(found, [{**one, "data": base64.b64decode(one["data"])}])
    return one["encoding"], found["value"]


@pytest.mark.parametrize("value", [1, 2.5, "text", None, True, [1, [2, "x"]], {"a": [1, {"b": None}]}])
def test_plain_values_go_as_json(value: object) -> None:
    assert transfer(value) == ("json", value)


def test_arrays_go_in_numpys_format_and_tables_with_their_types() -> None:
    encoding, array = transfer(np.arange(6).reshape(2, 3))
    assert (encoding, array.tolist()) == ("npy", [[0, 1, 2], [3, 4, 5]])
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-02-01"]), "kind": ["a", "b"], "rain": [1.5, 2]})
    encoding, table = transfer(frame)
    assert encoding in ("arrow", "pickle")
    pd.testing.assert_frame_equal(table, frame)


def test_what_is_neither_goes_as_a_pickle() -> None:
    encoding, thing = transfer(Thing(5))
    assert (encoding, thing.value) == ("pickle", 5)


def test_what_is_too_large_or_can_not_be_copied_is_left_out_and_the_rest_goes() -> None:
    values = {
        "big": bytes(variable_transfer.MAX_BYTES + 1),
        "wide": np.zeros(variable_transfer.MAX_BYTES // 8 + 1),
        "deep": [list(range(600_000)), list(range(600_000))],
        "hidden": Thing(0),
        "exploding": Exploding(),
        "small": 1,
    }
    values["hidden"].value = "x" * (variable_transfer.MAX_BYTES + 1)  # type: ignore[attr-defined]  # seen when it is pickled
    found = variable_transfer.copy_variables(values, values)
    assert [one["name"] for one in found.variables] == ["small"]
    assert {name for name, reason in found.left_out.items() if "too large" in reason} == {
        "big",
        "wide",
        "deep",
        "hidden",
    }
    assert found.left_out["exploding"] == "it cannot be copied (RuntimeError)"


def test_all_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_transfer, "MAX_TOGETHER", 2_500)
    found = variable_transfer.copy_variables("abc", dict.fromkeys("abc", "x" * 1_000))
    assert ([one["name"] for one in found.variables], list(found.left_out)) == (["a", "b"], ["c"])


@pytest.mark.parametrize("encoding", ["pickle", "", "yaml"])
def test_nothing_is_read_but_data(encoding: str) -> None:
    with pytest.raises(AgentError, match="which this kernel cannot read"):
        variable_transfer.decode_variable("x", encoding, "Evil", pickle.dumps(Evil()))


def test_objects_in_arrays_and_broken_data_are_refused() -> None:
    raw = np.array([Evil()], dtype=object).dumps()
    for encoding, data in (("npy", raw), ("npy", b""), ("json", b"{"), ("arrow", b"nonsense")):
        with pytest.raises(AgentError, match="cannot be read in this kernel"):
            variable_transfer.decode_variable("x", encoding, "", data)
