"""Tests what is read from the result of a failed program."""

from __future__ import annotations

import pytest

from agent_kernel.core.programs.program_outcome import failed_line

KERNEL = "1\nTraceback (most recent call last):\n  line 4, in <module>\n    t['b'].sum()\nKeyError: 'b'"
SANDBOX = "Traceback:\n  File \"<run 1>\", line 3, in <module>\n    t['b'].sum()\n    ~^^^^^\nKeyError: 'b'"
INNER = "Traceback:\n  line 9, in <module>\n    t['b'].sum()\n  line 2, in total\n    return x\nKeyError: 'b'"


@pytest.mark.parametrize("result", [KERNEL, SANDBOX, INNER])
def test_a_traceback_has_the_line_of_the_program_that_failed(result: str) -> None:
    assert failed_line(result) == "t['b'].sum()"


def test_without_a_traceback_no_line_is_known() -> None:
    assert failed_line("KeyError: 'b'") == ""
