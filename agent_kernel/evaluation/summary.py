"""Summarises the results of a run by kind of task, and separately for tuned tasks and tasks held out of tuning."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from agent_kernel.evaluation.task_result import TaskResult

ALL = "all"


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
