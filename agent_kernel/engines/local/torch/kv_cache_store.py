"""What a model has computed for conversations, kept for their next turns; for models that run one request at a time.

It works on the library's cache objects and imports no library. A kept state is never changed: whoever goes on from it
gets a fork.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

APPENDED = {"DynamicLayer", "DynamicSlidingWindowLayer"}
"""Cache layers that make new tensors instead of changing theirs (transformers 5.23), so that a fork shares them."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """``cache`` after the tokens that ``keys`` name, and the ``logits`` of the last of them. A key is a token's id, or
    below 0 for the tokens of a picture: then it stands for what is on the picture."""

    keys: tuple[int, ...]
    cache: Any
    logits: Any


NOTHING = KeptState((), None, None)


class KeptCaches:
    """Least recently used states go first when there are more than ``budget`` bytes; 0 keeps nothing.

    Attention caches can be cut back to any shared prefix. Sliding windows that are full and recurrent states can not:
    of those only states that a prompt contains whole are of use, and the caller adds one where a turn may be edited.
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
        """A fork of the state that has most of ``keys`` computed, cut back to what they share. ``cut`` moves a position
        to the nearest one before it at which a prompt may be cut. Without anything shared the cache is None; after a
        cut the logits are, and the last of ``keys`` is not among those of the state, so that there is one to run."""
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
            return KeptState(best.keys, forked(best.cache), best.logits)
        cache = forked(best.cache)
        cache.crop(length - len(best.keys))
        return KeptState(best.keys[:length], cache, None)

    def add(self, state: KeptState) -> None:
        """States that this one contains and could be cut back to are dropped."""
        if not self._budget or not state.keys:
            return
        covered = 0 if can_crop(state.cache) else len(state.keys)
        self._states = [old for old in self._states if not covered <= len(old.keys) <= _shared(old.keys, state.keys)]
        self._states.append(state)
        while self._states and self.bytes > self._budget:
            del self._states[0]

    def clear(self) -> None:
        self._states.clear()


def forked(cache: Any) -> Any:
    """A cache that can go its own way; tensors are shared where the library never changes them."""
    if not hasattr(cache, "layers"):
        return copy.deepcopy(cache)
    fork = copy.copy(cache)
    fork.layers = [
        copy.copy(layer) if type(layer).__name__ in APPENDED else copy.deepcopy(layer) for layer in cache.layers
    ]
    return fork


def can_crop(cache: Any) -> bool:
    """Whether tokens can be taken back from its end."""
    return hasattr(cache, "layers") and all(_layer_can_crop(layer) for layer in cache.layers)


def _layer_can_crop(layer: Any) -> bool:
    if type(layer).__name__ not in APPENDED:
        return False
    return not getattr(layer, "is_sliding", False) or bool(layer.get_seq_length() < layer.sliding_window)


def _usable(state: KeptState, keys: Sequence[int], cut: Callable[[int], int]) -> int:
    shared = _shared(state.keys, keys)
    if shared == len(state.keys) and cut(shared) == shared:
        return shared
    return cut(min(shared, len(keys) - 1)) if can_crop(state.cache) else 0


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix, by halving: comparing slices is much quicker than comparing items."""
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
    """Of all tensors that the cache's layers hold."""
    found = 0
    for layer in getattr(cache, "layers", [cache]):
        for value in vars(layer).values():
            held = value.values() if isinstance(value, dict) else [value]
            found += sum(int(getattr(tensor, "nbytes", 0) or 0) for tensor in held)
    return found
