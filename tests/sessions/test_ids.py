"""Tests ids that contain their time of creation."""

from __future__ import annotations

import time

import pytest

from agent_kernel.core.session import creation_time, new_id


def test_an_id_tells_when_it_was_made() -> None:
    before = int(time.time())
    made = creation_time(new_id("turn"))
    assert made is not None
    assert before <= made <= time.time()


@pytest.mark.parametrize(
    "id", ["", "turn", "turn-1", "a-b-c-d", "turn-20269999-000000-aaaaaa", "turn-20260101-0000000-a"]
)
def test_of_a_foreign_id_that_is_not_known(id: str) -> None:
    assert creation_time(id) is None
