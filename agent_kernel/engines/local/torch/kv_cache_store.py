"""Keeps the computed KV caches of conversations for their next turns, for models that run one request at a time.

This module works on the library's cache objects and imports no library. A kept state is never changed: a request that
continues from it gets a copy (a fork).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

APPENDED = {"DynamicLayer", "DynamicSlidingWindowLayer"}
"""Names of cache layers that create new tensors instead of changing existing ones (transformers 5.23), so that a fork
can share their tensors."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of a model after a sequence of tokens: its ``cache``, and the ``logits`` of the last token. ``keys``
    identify the tokens. The key of a text token is its id. All tokens of a picture have the same key, a negative number
    that depends on the picture's content."""

    keys: tuple[int, ...]
    cache: Any
    logits: Any


NOTHING = KeptState((), None, None)


class KeptCaches:
    """Stores states up to ``budget`` bytes and evicts the least recently used ones; with a budget of 0, nothing is
    kept.

    Attention caches can be cut back to any shared prefix. Full sliding windows and recurrent states cannot. They are
    useful only if a prompt contains all of their tokens, so the caller adds such a state at each point from which a
    later prompt may differ.
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

        ``cut`` moves a position to the nearest earlier position at which a prompt may be cut. If no state shares a
        prefix, the returned cache is None. If the state was cut back, its logits are None, and it ends before the last
        of ``keys``, so that at least one token is left to compute.
        """
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
        """Add a state. Drop the stored states that are a prefix of it, if it can be cut back to them."""
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
    """Return a copy of a cache, so that both can be continued. They share the tensors that the library never
    changes."""
    if not hasattr(cache, "layers"):
        return copy.deepcopy(cache)
    fork = copy.copy(cache)
    fork.layers = [
        copy.copy(layer) if type(layer).__name__ in APPENDED else copy.deepcopy(layer) for layer in cache.layers
    ]
    return fork


def can_crop(cache: Any) -> bool:
    """Return whether tokens can be removed from the end of the cache."""
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


def _shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two sequences. It uses bisection, since comparing slices is
    much faster than comparing items."""
    low, high = 0, min(len(first), len(second))
    first, second = tuple(first[:high]), tuple(second[:high])
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _bytes(cache: Any) -> int:
    """Return the size in bytes of all tensors in the layers of the cache."""
    size = 0
    for layer in getattr(cache, "layers", [cache]):
        for value in vars(layer).values():
            held = value.values() if isinstance(value, dict) else [value]
            size += sum(int(getattr(tensor, "nbytes", 0) or 0) for tensor in held)
    return size
