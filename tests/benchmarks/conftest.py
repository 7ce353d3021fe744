"""The fixture with which benchmarks record the figures of docs/performance.md."""

from __future__ import annotations

from typing import Protocol

import pytest

from tests.benchmarks import figures


class Record(Protocol):
    def __call__(self, row: str, ours: float, peer: float | None, unit: str) -> None: ...


@pytest.fixture(scope="session")
def record() -> Record:
    """The function that records a figure of the row ``row`` of figures.ROWS: ``record(row, ours, peer, unit)``."""
    return figures.record
