"""Soak tests: they inject the same faults repeatedly for a given time, drawn from a seed.

pytest tests/soak --soak-minutes 40 --seed 7

Not part of a plain ``pytest`` (norecursedirs). ``@pytest.mark.soak(share)`` divides the time among the tests; starting
servers and browsers is extra. A soak test that fails prints its seed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.jupyter_ext.conftest import agent_server

__all__ = ["agent_server"]

SEED = 20_260_726
MINUTES = 40.0
CLOSING_LINE = "closing line"
"""Name of the property of a test report that has the closing line. Reports also come from processes of xdist."""


@dataclass
class Soak:
    """The time and the counts of one soak test: it is ``running`` until its time is over; its closing line prints
    ``counts``.
    """

    name: str
    seed: int
    seconds: float
    random: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def running(self) -> bool:
        return self.elapsed < self.seconds

    def begin(self) -> None:
        """Start the clock: setup time does not count."""
        self.started = time.monotonic()

    @property
    def closing_line(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        return f"soak {self.name}: seed {self.seed}, {self.elapsed:.0f} s: {counts or 'nothing was done'}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--soak-minutes", type=float, default=MINUTES, help=f"for all soaks together (default {MINUTES:g})")
    group.addoption("--seed", type=int, default=SEED, help=f"the same seed draws the same faults (default {SEED})")


def share_of(item: pytest.Item) -> float:
    mark = item.get_closest_marker("soak")
    assert mark is not None, f"{item.nodeid} says no share of the time: @pytest.mark.soak(0.1)"
    return float(mark.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the timeout of each soak test to twice its time plus ten minutes for a slow machine to start and clean up."""
    for item in items:
        if "tests/soak" in item.path.as_posix():
            seconds = config.getoption("--soak-minutes") * 60 * share_of(item)
            item.add_marker(pytest.mark.timeout(2 * seconds + 600))


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> Iterator[Soak]:
    seed = int(request.config.getoption("--seed"))
    seconds = request.config.getoption("--soak-minutes") * 60 * share_of(request.node)
    name = request.node.name.removeprefix("test_")
    one = Soak(name, seed, seconds, random.Random(f"{seed} {name}"))
    yield one
    request.node.user_properties.append((CLOSING_LINE, one.closing_line))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, line in report.user_properties:
                    if name == CLOSING_LINE:
                        terminalreporter.write_line(line, bold=True)
