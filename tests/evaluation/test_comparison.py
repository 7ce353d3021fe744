from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.evaluation.comparison import compare, sign_test
from agent_kernel.evaluation.task_result import TaskResult, TaskTurn


def result(name: str, right: bool, seconds: float = 1.0, tokens: int = 10, repetition: int = 1) -> TaskResult:
    turn = TaskTurn("?", "!", usage={"completion_tokens": tokens})
    return TaskResult(name, "chat", False, "" if right else "no", seconds, repetition, turns=(turn,))


@pytest.mark.parametrize(
    ("better", "worse", "expected"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 0.0625),
        (6, 0, 0.03125),
        (8, 2, 0.109375),
        (9, 1, 0.021484375),
        (10, 10, 1.0),
        (15, 5, 0.04138947),
        (2000, 1900, 0.112894),
    ],
)
def test_the_sign_test_gives_the_values_of_the_binomial_distribution(better: int, worse: int, expected: float) -> None:
    assert sign_test(better, worse) == pytest.approx(expected, abs=1e-5)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_a_probability_and_knows_no_side(better: int, worse: int) -> None:
    assert 0 < sign_test(better, worse) <= 1
    assert math.isclose(sign_test(better, worse), sign_test(worse, better))


def test_runs_are_compared_on_the_tasks_that_both_have() -> None:
    first = [result("a", True), result("b", False), result("c", False, 3.0), result("gone", True)]
    second = [result("c", True, 5.0, 30), result("b", False), result("a", False), result("new", True)]
    found = compare(first, second)

    assert (found.tasks, found.both_right, found.both_wrong) == (3, 0, 1)
    assert (found.better, found.worse, found.right) == (("c",), ("a",), (1, 1))
    assert (found.only_first, found.only_second) == (1, 1)
    assert (found.seconds, found.completion_tokens) == ((1.0, 1.0), (10, 10))
    assert found.p_value == 1.0


def test_each_repetition_is_compared_with_its_own() -> None:
    first = [result("a", True, repetition=1), result("a", False, repetition=2)]
    second = [result("a", True, repetition=1), result("a", True, repetition=2)]

    assert compare(first, second).better == ("a (2)",)


def test_runs_without_a_common_task_compare_to_nothing() -> None:
    assert compare([result("a", True)], []).tasks == 0
