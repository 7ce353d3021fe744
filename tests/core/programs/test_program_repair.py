"""Tests the corrections of programs on the errors of the installed pandas and NumPy."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agent_kernel.core.programs.program_repair import repair_program
from agent_kernel.sandbox.worker.traceback_filter import outcome


def namespace() -> dict[str, Any]:
    marks = {
        "Class ": ["6a", "6b"],
        "day": ["01/02/2024", "13/02/2024"],
        "paid": ["1,204", "$7"],
        "points": [1.0, None],
    }
    days = pd.DataFrame(
        {"day": pd.date_range("2024-01-31", periods=2), "text": ["2024-01-31", "2024-02-01"], "v": [1, 2]}
    )
    return {"pd": pd, "np": np, "marks": pd.DataFrame(marks), "days": days}


def run(code: str) -> str:
    """Run a program as the sandbox does. Return the text of its error, and an empty string if it has none."""
    name = "<run 1>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        exec(compile(code, name, "exec"), namespace())
    except Exception as error:  # noqa: BLE001  any error is corrected
        return outcome(error)[1] or ""
    return ""


CORRECTED = [
    ("x = (days['day'] - days['day'].min()) + 1", "x = (days['day'] - days['day'].min()).dt.days + 1"),
    ("x = days['day'] - days['day'].min()\ny = x + 1", "x = days['day'] - days['day'].min()\ny = x.dt.days + 1"),
    ("d = {'a': -2, 'b': 1}\nx = max(d, key=abs)", "d = {'a': -2, 'b': 1}\nx = max(d, key=lambda key: abs(d[key]))"),
    ("age = days['v'] * 2\nx = days[['v', 'age']]", "age = days['v'] * 2\ndays['age'] = age\nx = days[['v', 'age']]"),
    ("points = marks\nx = Points['points']\ny = Points", "points = marks\nx = points['points']\ny = points"),
    ("marks.groupby('Class')['points'].mean()", "marks.groupby('Class ')['points'].mean()"),
    ("x = marks[['class', 'points']]", "x = marks[['Class ', 'points']]"),
    ("marks.Class.count()", "marks['Class '].count()"),
    ("days.set_index('day').resample('M').sum()", "days.set_index('day').resample('ME').sum()"),
    ("days.set_index('day').v.resample('6H').sum()", "days.set_index('day').v.resample('6h').sum()"),
    ("days['day'].dt.to_period('ME')", "days['day'].dt.to_period('M')"),
    ("x = marks.append(marks, ignore_index=True)", "x = pd.concat([marks, marks], ignore_index=True)"),
    ("x = days\nx = x.append(x)\nx = x.append(x)", "x = days\nx = pd.concat([x, x])\nx = pd.concat([x, x])"),
    ("for c in marks.iteritems():\n    print(c)", "for c in marks.items():\n    print(c)"),
    ("marks.applymap(str)", "marks.map(str)"),
    ("np.array([1]).astype(np.float)", "np.array([1]).astype(float)"),
    ("x = np.NaN", "x = np.nan"),
    ("marks['points'].fillna(method='ffill')", "marks['points'].ffill()"),
    ("pd.to_datetime(days['text'], infer_datetime_format=True)", "pd.to_datetime(days['text'])"),
    (
        "u = pd.to_datetime(days['text'], utc=True)\nx = u.dt.tz_localize('Europe/Berlin').dt.hour",
        "u = pd.to_datetime(days['text'], utc=True)\nx = u.dt.tz_convert('Europe/Berlin').dt.hour",
    ),
    (
        "x = days.groupby('text').nlargest(1, 'v')",
        "x = days.sort_values('v', ascending=False).groupby('text').head(1)",
    ),
    ("marks.groupby('day').mean()", "marks.groupby('day').mean(numeric_only=True)"),
    ("marks.corr()", "marks.corr(numeric_only=True)"),
    ("days['text'].dt.month", "pd.to_datetime(days['text']).dt.month"),
    ("days['v'].str.len()", "days['v'].astype(str).str.len()"),
    (
        "days.set_index('text')['v'].resample('D').sum()",
        "days.assign(**{'text': pd.to_datetime(days['text'])}).set_index('text')['v'].resample('D').sum()",
    ),
    ("pd.to_datetime(marks['day'])", "pd.to_datetime(marks['day'], format='mixed', dayfirst=True)"),
    ("marks[marks.points > 0 and marks.day == 'x']", "marks[(marks.points > 0) & (marks.day == 'x')]"),
    ("marks['points'].astype(int)", "marks['points'].astype('Int64')"),
    ("days[days['day'] >= 2024]", "days[days['day'].dt.year >= 2024]"),
    (
        "days[days['day'] > pd.Timestamp('2024').date()]",
        "days[days['day'] > pd.Timestamp(pd.Timestamp('2024').date())]",
    ),
    (
        "marks[marks['paid'] > 5]",
        "marks[pd.to_numeric(marks['paid'].astype(str).str.replace(r'[^\\d.eE+-]', '', regex=True), errors='coerce')"
        " > 5]",
    ),
    ("Fee_number = 1\nprint(marks['Fee number'])", "Fee_number = 1\nprint(Fee_number)"),
    (
        "paid = pd.to_numeric(marks['paid'], errors='coerce')\nmarks['paid'].mean()",
        "paid = pd.to_numeric(marks['paid'], errors='coerce')\npaid.mean()",
    ),
    ("low, high = [1, 2, 3]\nprint(low)", "low, high, *_ = [1, 2, 3]\nprint(low)"),
    ("print(marks['day'].value_counts()[0])", "print(marks['day'].value_counts().iloc[0])"),
    ("print(marks[['points', 'points']].corr()[0, 1])", "print(marks[['points', 'points']].corr().iloc[0, 1])"),
    ("mean = marks['points'].mean()\nprint(mean[0])", "mean = marks['points'].mean()\nprint(mean)"),
    (
        "days['text'] = pd.to_datetime(days['text'])\nx = days['v'].groupby([days.index.year, days.index.month]).sum()",
        "days['text'] = pd.to_datetime(days['text'])\n"
        "x = days['v'].groupby([days['text'].dt.year, days['text'].dt.month]).sum()",
    ),
    ("girls = 3\nprint(girl + 1)", "girls = 3\nprint(girls + 1)"),
    ("days.pivot('day', 'text', 'v')", "days.pivot(index='day', columns='text', values='v')"),
    (
        "marks['paid'].astype(float)",
        "pd.to_numeric(marks['paid'].astype(str).str.replace(r'[^\\d.eE+-]', '', regex=True), errors='coerce')",
    ),
    (
        "x = 'é'; y = 1\nü = pd.to_numeric(marks['paid'])",
        "x = 'é'; y = 1\nü = pd.to_numeric(marks['paid'].astype(str).str.replace(r'[^\\d.eE+-]', '', regex=True), "
        "errors='coerce')",
    ),
]


@pytest.mark.parametrize(("code", "corrected"), CORRECTED)
def test_a_program_is_corrected_as_its_error_says_and_then_runs(code: str, corrected: str) -> None:
    assert repair_program(code, run(code)) == corrected
    assert run(corrected) == ""


@pytest.mark.parametrize(
    "code",
    [
        "marks['grade']",  # no column is similar
        "marks[0]",
        "x = {'a': 1}\nx[0]",
        "total = 1\nmarks['total']",
        "marks['points'].nope()",
        "x = 1 / 0",
        "[].append(1, 2)",
        "raise ValueError('could not convert string to float')",
        "pd.to_numeric(pd.Series(['1,5', 'x']))",  # the comma may separate decimals
        "f(",
    ],
)
def test_without_a_known_correction_there_is_none(code: str) -> None:
    try:
        text = run(code)
    except SyntaxError as error:
        text = f"SyntaxError: {error}"
    assert text
    assert repair_program(code, text) == ""


def test_a_text_that_is_no_error_corrects_nothing() -> None:
    assert repair_program("marks['Class']", "") == ""
    assert repair_program("marks['Class']", "KeyError") == ""
