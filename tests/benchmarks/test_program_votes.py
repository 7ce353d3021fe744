"""Measures the cost of trying k programs in drafts instead of one: seconds and memory with a kernel of 1 GB, and what
remains after two hundred turns.
"""

from __future__ import annotations

import statistics

import pytest

from agent_kernel.notebook.draft import jail
from tests.notebook.draft.test_trials import tried

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(jail.missing()), reason=jail.missing()),
]
COUNTS = (1, 2, 4, 8)
GIGABYTE = "array = bytearray(b'x') * (1 << 29)\nlines = [str(number) * 8 for number in range(3_500_000)]"
REPEATS = 5


def test_what_trials_cost_beside_a_kernel_of_a_gigabyte(capsys: pytest.CaptureFixture[str]) -> None:
    """The memory is the private dirty memory of the draft's processes after the programs were tried."""
    turns = [[f"print(len(lines) + {n})" for n in range(k)] for _ in range(REPEATS) for k in COUNTS]
    found = tried([["print(0)"], *turns], extra=GIGABYTE, timeout_s=500)["turns"][1:]
    one = statistics.median(turn["seconds"] for turn in found[:: len(COUNTS)])
    with capsys.disabled():
        for place, k in enumerate(COUNTS):
            mine = found[place :: len(COUNTS)]
            took, memory = statistics.median(turn["seconds"] for turn in mine), max(turn["private_mb"] for turn in mine)
            print(
                f"\n{k} programs: {took * 1e3:.0f} ms, {took / one:.1f} times, the draft holds {memory:.0f} MB", end=""
            )
        print()
    assert max(turn["private_mb"] for turn in found) < 400, "the forks share the kernel's gigabyte"


def test_two_hundred_turns_leave_nothing_behind() -> None:
    programs = ["made = [values]", "print(sum(values))", "1 / 0", "open('x', 'w')", "values.append(0)"]
    found = tried([[programs[turn % 5], programs[(turn + 1) % 5]] for turn in range(200)], timeout_s=500)
    assert found["after"] == found["before"]
