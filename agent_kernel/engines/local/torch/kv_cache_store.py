"""Keeps the computed caches of conversations for their next turns, for models that run one request at a time.

It works on the library's cache objects and imports no library. A kept state is never changed: a request that continues
from it gets a fork.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

APPENDED = {"DynamicLayer", "DynamicSlidingWindowLayer"}
"""Cache layers that create new tensors instead of changing theirs (transformers 5.23), so that a fork can share
them."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """The ``cache`` after the tokens that ``keys`` identify, and the ``logits`` of the last one. A key is a token's id;
    for the tokens of a picture it is negative and identifies the content of the picture."""

    keys: tuple[int, ...]
    cache: Any
    logits: Any


NOTHING = KeptState((), None, None)


class KeptCaches:
    """Evicts the least recently used states beyond ``budget`` bytes; 0 keeps nothing.

    Attention caches can be cut back to any shared prefix. Full sliding windows and recurrent states cannot: they are
    useful only if a prompt contains all of their tokens, so the caller adds one where a turn may be edited.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._states: list[KeptState] = []

    @property
    def bytes(self) -> int:
        return sum(_bytes(state.cache) for state in self._states)

    def __len__(self) -> int:
        return len(self._states)

    def longest(self, keys: Sequence[int], cut: Callable[[int], int]) -> KeptState:
        """Return a fork of the state that shares the longest prefix with ``keys``, cut back to that prefix.

        ``cut`` moves a position to the nearest earlier one at which a prompt may be cut. The cache is None if nothing
        is shared. After a cut the logits are None, and the state ends before the last of ``keys``, so that at least one
        token is left to compute."""
        best, length = None, 0
        for state in self._states:
            usable = _usable(state, keys, cut)
            if usable > length:
                best, length = state, usable
        if best is None:
            return NOTHING
        self._states.remove(best)
        self._states.append(best)
        if length == len(best.keys):
            return KeptState(best.keys, fork_cache(best.cache), best.logits)
        cache = fork_cache(best.cache)
        cache.crop(length - len(best.keys))
        return KeptState(best.keys[:length], cache, None)

    def add(self, state: KeptState) -> None:
        """Add a state and drop those that it contains and can be cut back to."""
        if not self._budget or not state.keys:
            return
        covered = 0 if can_crop(state.cache) else len(state.keys)
        self._states = [
            old for old in self._states if not covered <= len(old.keys) <= _shared_prefix(old.keys, state.keys)
        ]
        self._states.append(state)
        while self._states and self.bytes > self._budget:
            del self._states[0]

    def clear(self) -> None:
        self._states.clear()


def fork_cache(cache: Any) -> Any:
    """Copy a cache so that both can be continued; tensors that the library never changes are shared."""
    if not hasattr(cache, "layers"):
        return copy.deepcopy(cache)
    fork = copy.copy(cache)
    fork.layers = [
        copy.copy(layer) if type(layer).__name__ in APPENDED else copy.deepcopy(layer) for layer in cache.layers
    ]
    return fork


def can_crop(cache: Any) -> bool:
    """Whether tokens can be removed from the end of the cache."""
    return hasattr(cache, "layers") and all(_layer_can_crop(layer) for layer in cache.layers)


def _layer_can_crop(layer: Any) -> bool:
    if type(layer).__name__ not in APPENDED:
        return False
    return not getattr(layer, "is_sliding", False) or bool(layer.get_seq_length() < layer.sliding_window)


def _usable(state: KeptState, keys: Sequence[int], cut: Callable[[int], int]) -> int:
    shared = _shared_prefix(state.keys, keys)
    if shared == len(state.keys) and cut(shared) == shared:
        return shared
    return cut(min(shared, len(keys) - 1)) if can_crop(state.cache) else 0


def _shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the longest common prefix. Bisects, since comparing slices is much faster than comparing
    items."""
    low, high = 0, min(len(one), len(other))
    one, other = tuple(one[:high]), tuple(other[:high])
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _bytes(cache: Any) -> int:
    """Return the size of all tensors in the cache's layers."""
    size = 0
    for layer in getattr(cache, "layers", [cache]):
        for value in vars(layer).values():
            held = value.values() if isinstance(value, dict) else [value]
            size += sum(int(getattr(tensor, "nbytes", 0) or 0) for tensor in held)
    return size
