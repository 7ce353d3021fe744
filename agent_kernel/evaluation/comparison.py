"""Compares two runs of the same tasks: which tasks only one of them solved, and how likely the difference is by chance.

The sign test uses only the tasks that one run solved and the other did not. If both runs were equally good, each of
these tasks would be solved by either run with the same probability. ``p_value`` is the probability, under this
assumption, of a split that is at least as uneven as the observed one (two-sided, exact).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.evaluation.task_result import TaskResult

ALL = "all"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs over the tasks that both contain; each repetition counts as one task. ``better`` are
    the labels of the tasks that only the second run solved, ``worse`` the labels of those that only the first run
    solved. ``seconds`` and ``completion_tokens`` are the medians of the first and of the second run. ``only_first`` and
    ``only_second`` are the numbers of results that only one of the runs contains."""

    tasks: int
    both_right: int
    both_wrong: int
    better: tuple[str, ...]
    worse: tuple[str, ...]
    seconds: tuple[float, float]
    completion_tokens: tuple[float, float]
    only_first: int
    only_second: int

    @property
    def right(self) -> tuple[int, int]:
        return self.both_right + len(self.worse), self.both_right + len(self.better)

    @property
    def p_value(self) -> float:
        return sign_test(len(self.better), len(self.worse))

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "right": list(self.right),
            "both_right": self.both_right,
            "both_wrong": self.both_wrong,
            "better": list(self.better),
            "worse": list(self.worse),
            "p_value": self.p_value,
            "median_seconds": list(self.seconds),
            "median_completion_tokens": list(self.completion_tokens),
            "only_in_first": self.only_first,
            "only_in_second": self.only_second,
        }


def sign_test(better: int, worse: int) -> float:
    """Return the p-value of the two-sided sign test: the probability that ``better + worse`` tosses of a fair coin show
    at most ``min(better, worse)`` heads, or at most as many tails. It is 1 if there are no tosses."""
    coins, few = better + worse, min(better, worse)
    tail = sum(math.comb(coins, heads) for heads in range(few + 1)) / (1 << coins)
    return min(1.0, 2 * tail)


def compare(first: Sequence[TaskResult], second: Sequence[TaskResult]) -> Comparison:
    """Compare two runs. Their results are paired by task and repetition."""
    earlier = {result.key: result for result in first}
    later = {result.key: result for result in second}
    pairs = [(one, later[key]) for key, one in earlier.items() if key in later]
    return Comparison(
        tasks=len(pairs),
        both_right=sum(a.is_right and b.is_right for a, b in pairs),
        both_wrong=sum(not a.is_right and not b.is_right for a, b in pairs),
        better=tuple(b.label for a, b in pairs if b.is_right and not a.is_right),
        worse=tuple(a.label for a, b in pairs if a.is_right and not b.is_right),
        seconds=(_median([a.seconds for a, _ in pairs]), _median([b.seconds for _, b in pairs])),
        completion_tokens=(
            _median([a.completion_tokens for a, _ in pairs]),
            _median([b.completion_tokens for _, b in pairs]),
        ),
        only_first=len(earlier) - len(pairs),
        only_second=len(later) - len(pairs),
    )


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2) if values else 0.0


# Summarises the results of a run by kind of task, and separately for tuned tasks and tasks held out of tuning.


def summarize(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """Return the rows of the summary. There is one row for each kind of task, in the order of the tasks. If the run has
    both tuned and held-out tasks, there is one row for each of the two. The last row is for all tasks."""
    kinds = dict.fromkeys(result.kind for result in results)
    rows = [_row(kind, [result for result in results if result.kind == kind]) for kind in kinds]
    tuned, held_out = ([result for result in results if result.held_out is half] for half in (False, True))
    if tuned and held_out:
        rows += [_row("tuned", tuned), _row("held out", held_out)]
    return [*rows, _row(ALL, results)]


def _row(name: str, results: Sequence[TaskResult]) -> dict[str, Any]:
    """Return the row ``name`` for these results. Seconds are the median; tokens, programs and votes are sums.
    ``votes_tried`` is the number of programs that were compared in votes, ``votes_agree`` the number of those that gave
    the result that was used."""
    votes = [vote for result in results for vote in result.votes]
    return {
        "kind": name,
        "right": sum(result.is_right for result in results),
        "tasks": len(results),
        "seconds": round(statistics.median([result.seconds for result in results]), 1) if results else 0.0,
        "prompt_tokens": sum(result.prompt_tokens for result in results),
        "completion_tokens": sum(result.completion_tokens for result in results),
        "programs": sum(len(result.programs) for result in results),
        "failed_programs": sum(result.failed_programs for result in results),
        "votes": len(votes),
        "votes_agree": sum(vote.agree for vote in votes),
        "votes_tried": sum(vote.tried for vote in votes),
    }
