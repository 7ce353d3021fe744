"""Tests the facts about an error beyond its traceback."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.sandbox.worker.error_hints import MAX_FACTS, MAX_NAMES, describe_error

SALES = pd.DataFrame({"amount": [1], "date": ["x"], "city": ["Oslo"]})
COLUMNS = "Columns of {}: 'amount', 'date', 'city'."


def facts(code: str, **variables: Any) -> str:
    """Run a program as kernels do, without its own file, and return the description of its error."""
    name = "<run 1>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        exec(compile(code, name, "exec"), {"pd": pd, "np": np, "df": SALES, **variables})
    except Exception as error:  # noqa: BLE001  any error is described
        return describe_error(error)
    raise AssertionError("the program did not fail")


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("df['amout']", COLUMNS.format("df")),
        ("df[['amout', 'city']]", COLUMNS.format("df")),
        ("df.groupby('cty').sum()", COLUMNS.format("df")),
        ("def f(t):\n    return t['amout']\nf(df)", COLUMNS.format("t")),
        ("(df\n  .assign(a=1)\n  .groupby('cty').sum())", "Columns of the table: 'amount', 'date', 'city', 'a'."),
        (
            "df.amout",
            "Columns of the table: 'amount', 'date', 'city'. Attributes of DataFrame with a similar name: count.",
        ),
        ("np.meen([1])", "Names in numpy with a similar name: mean, median."),
        ("dff.head()", "Names that exist with a similar name: df."),
        ("{'one': 1}['on']", ""),
        ("d = {'one': 1, 'two': 2}\nd['on']", "Keys of d with a similar name: 'one', 'two'."),
        ("d = {'one': 1, 2: 2}\nd['x']", "Keys of d: 'one', 2."),
        ("a, b = np.zeros((3, 2)), np.zeros(4)\na + b", "a has the shape (3, 2). b has the shape (4,)."),
        ("new = [1, 2]\ndf['new'] = new", "df has the shape (1, 3). new has 2 items."),
        (
            "df['date'] - df['amount']",
            f"Types of the columns of df: 'amount' int64, 'date' {SALES.date.dtype}, 'city' {SALES.city.dtype}.",
        ),
        ("1 / 0", ""),
        ("'a' + 1", ""),
        ("raise KeyError", ""),
    ],
)
def test_an_error_is_described_by_what_the_process_has(code: str, known: str) -> None:
    assert facts(code) == known


def test_a_missing_file_is_described_by_the_files_of_its_folder(tmp_path: Path) -> None:
    for name in ("sales.csv", "costs.csv"):
        (tmp_path / name).touch()
    assert facts(f"open({str(tmp_path / 'sale.csv')!r})") == (f"Files in {tmp_path} with a similar name: sales.csv.")
    assert facts(f"open({str(tmp_path / 'zz')!r})") == f"Files in {tmp_path}: costs.csv, sales.csv."
    assert facts(f"pd.read_csv({str(tmp_path / 'none' / 'x.csv')!r})") == f"There is no folder {tmp_path / 'none'}."


def test_a_package_that_is_not_installed_is_described_by_those_that_are() -> None:
    known = facts("import no_such_package.part")
    assert known.startswith("no_such_package is not installed. Installed are pandas, numpy,")
    assert facts("import json.no_such_part") == ""


def test_a_description_is_short() -> None:
    wide = pd.DataFrame({f"column_{at}": [at] for at in range(1_000)})
    known = facts("df['x']", df=wide)
    assert len(known) <= MAX_FACTS
    assert "column_0" in known
    assert known.endswith("...") or f"and {1_000 - MAX_NAMES} more" in known


class Hostile:
    """An object that runs code in every way in which an object of the program could."""

    used: list[str] = []  # noqa: RUF012

    def __getattribute__(self, name: str) -> Any:
        Hostile.used.append(name)
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        Hostile.used.append("eq")
        raise RuntimeError

    def __hash__(self) -> int:
        Hostile.used.append("hash")
        return 1

    def __repr__(self) -> str:
        Hostile.used.append("repr")
        raise RuntimeError


class Table(pd.DataFrame):
    @property
    def columns(self) -> Any:
        Hostile.used.append("columns")
        raise RuntimeError


@pytest.mark.parametrize(
    "code",
    [
        "{}[thing]",
        "raise KeyError(thing)",
        "raise AttributeError('no', name='x', obj=thing)",
        "raise NameError('no', name=thing)",
        "raise FileNotFoundError(2, 'no', thing)",
        "raise ValueError('shape', thing)",
        "raise ModuleNotFoundError('no', name=thing)",
        "d = {'a': 1}; d.update({thing: 2}) or d['b']",
        "thing + table",
        "table.nothing_like_it",
    ],
)
def test_no_code_of_the_program_runs_for_a_description(code: str) -> None:
    table = Table({"a": [1]})
    name = "<run 2>"
    linecache.cache[name] = (len(code), None, [code], name)
    try:
        exec(compile(code, name, "exec"), {"thing": Hostile(), "table": table})
    except Exception as error:  # noqa: BLE001  any error is described
        Hostile.used.clear()
        describe_error(error)
    assert Hostile.used == []
