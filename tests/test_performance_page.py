"""Tests docs/performance.md: what benchmarks record for it, and what it says about rows that were not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.figures import PAGE, ROWS, SECTIONS, read_figures, record, render

BENCHMARKS = Path(__file__).with_name("benchmarks")
APPEND = "append of one message"


def test_every_row_names_a_benchmark() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("test_*.py"))
    assert [row.name for row in ROWS.values() if f"def test_{row.test}" not in code] == []


def test_a_recorded_figure_stands_beside_what_it_is_compared_with(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "figures.json"
    record(APPEND, 0.5, 0.25, "ms", file)
    record("size of the file", 2.4, 2.0, "MB", file)

    page = render(read_figures(file)).splitlines()

    assert f"| {APPEND} | 0.5 ms | a bare sqlite3 transaction: 0.25 ms | 2 | `{ROWS[APPEND].test}` |" in page
    others = [line for line in page if line.startswith("| ") and "not run" in line]
    assert len(others) == len(ROWS) - 2


def test_figures_of_another_machine_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    record(APPEND, 0.5, 0.25, "ms", file)
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"machine": stored["machine"] | {"processor": "another"}}))

    record("size of the file", 2.4, 2.0, "MB", file)

    assert list(read_figures(file)["rows"]) == ["size of the file"]


def test_a_row_that_is_not_of_the_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        record("no such row", 1.0, None, "ms", tmp_path / "figures.json")


def test_the_page_in_the_documentation_has_the_rows_of_the_benchmarks() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| | here")]
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows] == list(ROWS)
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == list(SECTIONS)
