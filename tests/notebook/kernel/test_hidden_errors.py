from __future__ import annotations

import textwrap
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.notebook.kernel.hidden_errors import find_hidden_error
from tests.benchmarks.notebook_errors import NotebookError, notebook_errors

CELL = "total = 0\nfor price in prices:\n    total += price / count\nprint(total)"
CAUGHT = "catches ZeroDivisionError at the statement that failed"
LEFT_OUT = "leaves out the statement that failed"


def verdict(proposed: str, source: str = CELL, line: int = 3, error: str = "ZeroDivisionError") -> str:
    return find_hidden_error(source, [line], error, proposed)


@pytest.mark.parametrize("catches", ["", "Exception", "ArithmeticError as e", "(ValueError, ZeroDivisionError)"])
@pytest.mark.parametrize("statement", ["total += price / count", "total += price / float(count)"])
def test_a_try_around_the_failing_statement_or_its_replacement_hides_the_error(catches: str, statement: str) -> None:
    proposed = (
        "total = 0\nfor price in prices:\n    try:\n        " + statement + f"\n    except {catches}:\n"
        "        print('no price')\nprint(total)"
    )
    assert CAUGHT in verdict(proposed)


@pytest.mark.parametrize("call", ["contextlib.suppress(ZeroDivisionError)", "suppress(Exception)"])
def test_suppress_hides_the_error_too(call: str) -> None:
    inner = textwrap.indent(CELL, "    ")
    assert CAUGHT in verdict(f"with {call}:\n{inner}")


def test_a_class_of_a_library_is_caught_by_its_bases() -> None:
    pytest.importorskip("pandas")
    proposed = "try:\n    rain = pd.read_csv('rain.csv')\nexcept ValueError:\n    pass"
    hidden = verdict(proposed, "rain = pd.read_csv('rain.csv')", 1, "pandas.errors.ParserError")
    assert "catches ParserError" in hidden


@pytest.mark.parametrize(
    "proposed",
    [
        "total = 0\nprint(total)",
        "total = 0\nfor price in prices:\n    pass\nprint(total)",
        "total = 0\nfor price in prices:\n    print('there is no count')\nprint(total)",
        "print('done')",
    ],
)
def test_a_cell_without_the_failing_statement_hides_the_error(proposed: str) -> None:
    assert LEFT_OUT in verdict(proposed)


def test_leaving_out_the_call_of_a_function_that_fails_hides_the_error() -> None:
    source = "def half(x):\n    return x / 0\nprint(half(4))"
    hidden = find_hidden_error(source, [3, 2], "ZeroDivisionError", "def half(x):\n    return x / 2")
    assert LEFT_OUT in hidden
    assert not find_hidden_error(source, [3, 2], "ZeroDivisionError", "def half(x):\n    return x / 2\nprint(half(4))")


@pytest.mark.parametrize(
    "proposed",
    [
        "total = 0\nfor price in prices:\n    total += price / max(count, 1)\nprint(total)",
        "total = sum(prices) / len(prices)\nprint(total)",
        "count = len(prices)\n" + CELL,
        "if count:\n" + textwrap.indent(CELL, "    "),
        CELL.replace("count", "3"),
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n" + CELL.replace("count", "3"),
        f"try:\n{textwrap.indent(CELL, '    ')}\nexcept ZeroDivisionError as error:\n    raise ValueError(error)",
        f"try:\n{textwrap.indent(CELL, '    ')}\nexcept KeyError:\n    print('another error')",
        "for price in",
    ],
)
def test_a_correction_hides_nothing(proposed: str) -> None:
    assert verdict(proposed) == ""


def test_a_try_that_the_failed_cell_has_may_stay() -> None:
    source = "try:\n    rate = float(text)\nexcept Exception:\n    rate = 1\nshare = rate / count"
    kept = source.replace("float(text)", "float(text.strip())").replace("/ count", "/ 4 + rate")
    assert verdict(kept, source, 5) == ""
    moved = "try:\n    rate = float(text)\n    share = rate / count\nexcept Exception:\n    share = 1"
    assert CAUGHT in verdict(moved, source, 5)


def test_a_failing_import_may_be_replaced_by_another() -> None:
    assert verdict("from math import sqrt", "from math import square", 1, "ImportError") == ""
    assert LEFT_OUT in verdict("x = 1", "import pands\nx = 1", 1, "ModuleNotFoundError")


NAMES = st.sampled_from(["rain", "tide", "lamp", "crew"])
VALUES = st.sampled_from(["1", "rain", "len(tide)", "lamp['lumen']", "max(crew, key=len)"])
LINES = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=5)


@given(LINES, st.integers(0, 4), VALUES, st.sampled_from(["ValueError", "KeyError", "TypeError"]))
def test_another_right_side_is_a_correction_and_a_try_around_it_is_none(
    lines: list[tuple[str, str]], place: int, value: str, error: str
) -> None:
    place %= len(lines)
    source = [f"{name} = {right}" for name, right in lines]
    corrected = [*source]
    corrected[place] = f"{lines[place][0]} = {value} or 0"
    judge = [place + 1]
    assert find_hidden_error("\n".join(source), judge, error, "\n".join(corrected)) == ""
    assert find_hidden_error("\n".join(source), judge, error, "\n".join(["import math", *corrected])) == ""
    corrected[place] = f"try:\n    {corrected[place]}\nexcept {error}:\n    print('failed')"
    assert "catches" in find_hidden_error("\n".join(source), judge, error, "\n".join(corrected))


@pytest.mark.parametrize("case", notebook_errors(), ids=lambda case: case.name)
def test_the_solution_of_a_real_error_hides_nothing_and_a_try_around_the_cell_does(
    case: NotebookError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, Any] = {}
    try:
        with warnings.catch_warnings(action="ignore"):
            exec(compile(case.setup, "setup", "exec"), namespace)
            exec(compile(case.cell, "cell", "exec"), namespace)
    except Exception as raised:  # noqa: BLE001  each case raises its own class
        frames = traceback.extract_tb(raised.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == "cell"]
        error = type(raised)
    assert error.__name__ == case.error
    if issubclass(error, SyntaxError):
        return
    name = error.__name__ if error.__module__ == "builtins" else f"{error.__module__}.{error.__name__}"
    assert find_hidden_error(case.cell, lines, name, case.solution) == ""
    caught = f"try:\n{textwrap.indent(case.solution, '    ')}\nexcept Exception as e:\n    print(e)"
    assert "catches" in find_hidden_error(case.cell, lines, name, caught)
