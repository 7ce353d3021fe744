from __future__ import annotations

from agent_kernel.core.recent_entries import RecentEntries


def test_the_entry_that_was_set_longest_ago_is_dropped() -> None:
    entries = RecentEntries[str, int](2)
    entries["a"] = 1
    entries["b"] = 2
    entries["a"] = 3
    assert entries["b"] == 2  # reading does not make it newer
    entries["c"] = 4

    assert dict(entries) == {"a": 3, "c": 4}
