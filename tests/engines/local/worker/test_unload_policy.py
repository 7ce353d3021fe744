"""Tests when a loaded model is unloaded, with a clock and a memory reading that the test sets."""

from __future__ import annotations

from agent_kernel.engines.local.system_memory import GIB, Memory
from agent_kernel.engines.local.worker.unload_policy import STAY, UnloadPolicy

MIB = 2**20


class World:
    """A machine with 8 GiB of memory, of which 1 GiB is reserved."""

    def __init__(self, idle_s: float = 60.0) -> None:
        self.now = 0.0
        self.available: int | None = 6 * GIB
        self.watch = UnloadPolicy(idle_s, 1.0, self.memory, lambda: self.now)

    def memory(self) -> Memory | None:
        return None if self.available is None else Memory(8 * GIB, self.available)


def test_an_idle_model_goes_after_its_time_and_not_while_a_request_runs() -> None:
    world = World()
    world.now = 59.9
    assert world.watch.verdict(busy=False) == STAY
    world.now = 60.0
    assert world.watch.verdict(busy=True) == STAY
    assert world.watch.verdict(busy=False).what == "unload"
    assert "1 min" in world.watch.verdict(busy=False).why


def test_a_request_begins_the_time_again() -> None:
    world = World()
    world.now = 50.0
    world.watch.touch()
    world.now = 100.0
    assert world.watch.verdict(busy=False) == STAY


def test_zero_means_never() -> None:
    world = World(idle_s=0)
    world.now = 1e9
    assert world.watch.verdict(busy=False) == STAY


def test_below_the_reserve_an_idle_model_goes_and_a_busy_one_takes_nothing_new() -> None:
    world = World()
    world.available = 900 * MIB
    assert world.watch.verdict(busy=False) == STAY, "it may be a moment"
    assert world.watch.verdict(busy=True).what == "refuse"
    assert world.watch.verdict(busy=False).what == "unload"
    world.available = 2 * GIB
    assert world.watch.verdict(busy=True) == STAY


def test_far_below_the_reserve_it_goes_at_once_whatever_it_does() -> None:
    world = World()
    world.available = 200 * MIB
    verdict = world.watch.verdict(busy=True)
    assert verdict.what == "abort"
    assert "210 MB of memory are available" in verdict.why


def test_where_memory_is_not_known_only_time_counts() -> None:
    world = World()
    world.available = None
    assert world.watch.verdict(busy=False) == STAY
    world.now = 61.0
    assert world.watch.verdict(busy=False).what == "unload"
