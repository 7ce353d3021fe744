from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.notebook.kernel import inspection
from agent_kernel.notebook.kernel.inspection import executions, format_traceback, last_error, variables
from agent_kernel.notebook.turn.execution_history import ExecutionHistory


def shell_with(**namespace: Any) -> Any:
    return SimpleNamespace(user_ns=namespace, user_ns_hidden={})


class Hostile:
    """An object whose every attribute access and repr raises an error."""

    def __init__(self) -> None:
        self.field = 7

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"touched {name}")

    def __repr__(self) -> str:
        raise AssertionError("asked for its text")

    __str__ = __len__ = __iter__ = __eq__ = __hash__ = __repr__  # type: ignore[assignment]

    def poke(self) -> None: ...


class Mute:
    """A value that pandas can hold but whose repr fails."""

    def __repr__(self) -> str:
        raise AssertionError("asked for its text")

    __str__ = __repr__


def slow_frame() -> Any:
    """Return an object whose class is named DataFrame and whose attributes never return."""

    def never(self: object) -> Any:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001  it swallows all that it can
                continue

    kind = type("DataFrame", (), {"shape": property(never)})
    kind.__module__ = "pandas.fake"
    return kind()


def test_variables_are_listed_newest_first_a_line_each_without_names_that_are_nobodys() -> None:
    shell = shell_with(In=[], _hidden=1, first=1, table=pd.DataFrame({"a": [1, 2]}), np=np, last="x")
    assert variables(shell).splitlines() == [
        "last: str of 1 characters: 'x'",
        "table: DataFrame, 2 rows x 1 columns: a int64",
        "first: int = 1",
        "modules: np",
    ]
    assert variables(shell_with()) == "There are no variables yet."


def test_a_table_is_looked_at_closely_with_missing_values_memory_and_its_first_rows() -> None:
    table = pd.DataFrame({"a": [1.5, None] * 50_000, "kind": ["sun", "rain"] * 50_000})
    told = variables(shell_with(table=table), "table")
    assert "100000 rows x 2 columns" in told
    assert " MB)" in told.splitlines()[0]
    assert "missing values: a 50000" in told
    assert "a | kind\n1.5 | sun\nnan | rain" in told


def test_an_object_we_do_not_know_is_read_past_whatever_it_overrides() -> None:
    shell = shell_with(hostile=Hostile(), cells=pd.DataFrame({"of": [Mute(), Mute()]}), array=np.array([Mute()]))
    assert "hostile: " in variables(shell)
    told = variables(shell, "hostile")
    assert "An object whose every attribute access and repr raises an error." in told
    assert ".field = 7" in told
    assert "methods: poke" in told
    assert "of=test_inspection.Mute" in variables(shell, "cells").replace("tests.notebook.kernel.", "")
    assert "Mute" in variables(shell, "array")


@pytest.mark.timeout(method="thread")  # the alarm is ours to use only while nobody else uses it
def test_a_value_that_never_answers_is_given_up_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "PATIENCE_S", 0.5)
    before = signal.getsignal(signal.SIGALRM)
    told = variables(shell_with(known=1, lazy=slow_frame()))
    assert told == "lazy: pandas.fake.DataFrame (inspecting it took too long)\nknown: int = 1"
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_thousand_variables_have_a_size_limit_and_the_rest_is_named() -> None:
    told = variables(shell_with(**{f"v{number}": "x" * 400 for number in range(1000)}), chars=2_000)
    assert len(told) < 2_700
    assert "more: v" in told


def test_a_name_that_is_not_there_is_said_to_be_not_there() -> None:
    assert variables(shell_with(a=1), "b") == "There is no variable 'b' in this kernel."


@pytest.fixture
def shell() -> Any:
    shell = InteractiveShell()  # type: ignore[no-untyped-call]  # IPython's
    yield shell
    if shell.history_manager is not None:
        shell.history_manager.end_session()


def test_what_ran_and_what_failed_last_is_told_with_its_source_and_without_ipythons_frames(shell: Any) -> None:
    ran = ExecutionHistory(shell)
    shell.run_cell("x = 41 + 1\nx", store_history=True)
    shell.run_cell("def f():\n    return {}['gone']\nf()", store_history=True)
    shell.run_cell("1/0", store_history=False)
    assert executions(shell, ran).splitlines() == ["In[1]: x = 41 + 1", "In[2]: def f(): -> KeyError"]
    assert executions(shell, ran, (1, 9)) == (
        "In[1]:\nx = 41 + 1\nx\nOut[1]: int = 42\n\nIn[9] did not run since the kernel was started."
    )
    told = last_error(shell, ran)
    assert told.startswith("In[2] failed. Its source:\ndef f():\n    return {}['gone']\nf()\n\nTraceback")
    assert "In[2], line 2, in f\n    return {}['gone']" in told
    assert told.endswith("KeyError: 'gone'")
    assert "IPython" not in told
    assert "ZeroDivisionError" not in told, "code of the agent is not the person's cell"
    ran.close()


def test_a_cell_that_does_not_parse_is_the_last_error_too(shell: Any) -> None:
    ran = ExecutionHistory(shell)
    shell.run_cell("def (:", store_history=True)
    assert "SyntaxError" in last_error(shell, ran)
    ran.close()


def test_a_kernel_that_does_not_count_its_executions_tells_what_python_remembers(shell: Any) -> None:
    assert "No cell has failed" in last_error(shell_with(), ExecutionHistory(shell))
    shell.run_cell("{}['gone']", store_history=True)
    told = last_error(shell, None)
    assert "In[1] failed. Its source:\n{}['gone']" in told
    assert told.endswith("KeyError: 'gone'")


def test_an_error_whose_text_can_not_be_had_is_told_by_its_type() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "Odd" in format_traceback(Odd(), lambda file: "")
