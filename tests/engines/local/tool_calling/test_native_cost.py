"""Tests the cost of parsing hostile or endless answers: it is linear in their length."""

from __future__ import annotations

import sys

import pytest

from agent_kernel.engines.local.tool_calling.call_parser import CallParser


def lines_run(text: str) -> int:
    """Return how many lines of Python the parser executes, a measure that load on the machine does not change."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    parser = CallParser(("python",), fences=True)
    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # a trace function returns itself
    try:
        for at in range(0, len(text), 4):
            parser.push(text[at : at + 4])
        parser.finish(cut=True)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "begin",
    [
        '{"name": "python", "arguments": {"code": "',
        "[TOOL_CALLS]python",
        "<tool_call>",
        "```python\n",
        "```json\n{",
        "",
    ],
)
@pytest.mark.parametrize("filling", ["words ", " ", "\n", '\\"', "a < b\n"])
def test_reading_takes_time_in_proportion_to_the_answer(begin: str, filling: str) -> None:
    short, long = lines_run(begin + filling * 200), lines_run(begin + filling * 800)

    assert long < 6 * short
