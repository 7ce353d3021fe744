"""Defines a dictionary that keeps only its newest entries, for data that may be lost, such as caches."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentEntries(OrderedDict[K, V]):
    """A dictionary with at most ``max_entries`` entries. Setting an entry makes it the newest one, even if its key
    existed already. If the dictionary then has more than ``max_entries`` entries, the oldest one is dropped. Reading an
    entry changes nothing."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._most = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
