"""A test that fails in its first run. test_reruns.py runs it with ``--reruns 1``."""

from __future__ import annotations

import pytest

RUNS: list[int] = []


@pytest.fixture(scope="module")
def shared() -> list[int]:
    return []


def test_the_second_run_shares_nothing_with_the_first(shared: list[int]) -> None:
    RUNS.append(1)
    shared.append(1)
    assert (len(RUNS), len(shared)) == (2, 1)
