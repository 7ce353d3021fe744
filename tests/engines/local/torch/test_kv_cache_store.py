"""Tests which stored state a prompt continues from, with layers that store one number per token in place of keys and
values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.engines.local.torch.kv_cache_store import NOTHING, KeptCaches, KeptState, can_crop

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


@dataclass
class DynamicLayer:
    """Named like the library's class: its tensors are replaced and never changed in place."""

    keys: np.ndarray[Any, Any]

    def crop(self, tokens_to_remove: int) -> None:
        assert tokens_to_remove < 0
        self.keys = self.keys[:tokens_to_remove]


@dataclass
class RecurrentLayer:
    """A layer that is changed in place and cannot be rolled back."""

    state: np.ndarray[Any, Any]


@dataclass
class Cache:
    layers: list[Any] = field(default_factory=list)

    def crop(self, tokens_to_remove: int) -> None:
        for layer in self.layers:
            layer.crop(tokens_to_remove)


def state(tokens: tuple[int, ...], *, recurrent: bool = False) -> KeptState:
    numbers = np.array(tokens, dtype=np.int64)
    layer = RecurrentLayer(np.array([numbers.sum()])) if recurrent else DynamicLayer(numbers)
    return KeptState(tokens, Cache([layer]), f"after {tokens}")


def same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def anywhere(at: int) -> int:
    return at


@given(st.lists(TOKENS, max_size=6), TOKENS)
def test_a_prompt_goes_on_from_the_longest_prefix_that_any_state_has(kept: list[tuple[int, ...]], prompt: Any) -> None:
    caches = KeptCaches(10**6)
    for tokens in kept:
        caches.add(state(tokens))
    found = caches.longest(prompt, anywhere)
    shared = [sum(1 for _ in takewhile(same, zip(tokens, prompt, strict=False))) for tokens in kept]
    least = max((min(count, len(prompt) - 1) for count in shared), default=0)

    assert found.keys == tuple(prompt[: len(found.keys)])
    assert len(found.keys) >= least
    if found.cache is not None:
        assert list(found.cache.layers[0].keys) == list(found.keys)
    assert found.logits in (None, f"after {found.keys}")
    assert found.logits is not None or len(found.keys) < len(prompt)


@given(TOKENS, TOKENS)
def test_a_recurrent_state_is_of_use_only_whole(tokens: tuple[int, ...], prompt: tuple[int, ...]) -> None:
    caches = KeptCaches(10**6)
    caches.add(state(tokens, recurrent=True))
    found = caches.longest(prompt, anywhere)

    assert not can_crop(state(tokens, recurrent=True).cache)
    assert found.keys == (tokens if prompt[: len(tokens)] == tokens else ())


def test_a_fork_leaves_what_is_kept_as_it_was() -> None:
    caches = KeptCaches(10**6)
    caches.add(state((1, 2, 3), recurrent=True))
    caches.longest((1, 2, 3, 4), anywhere).cache.layers[0].state[0] = 99

    assert caches.longest((1, 2, 3, 4), anywhere).cache.layers[0].state[0] == 6


def test_a_longer_state_takes_the_place_of_those_it_can_be_cut_back_to() -> None:
    cut, whole = KeptCaches(10**6), KeptCaches(10**6)
    for tokens in ((1, 2), (1, 2, 3), (1, 9), (1, 2, 3, 4)):
        cut.add(state(tokens))
        whole.add(state(tokens, recurrent=True))

    assert (len(cut), len(whole)) == (2, 4)


def test_the_least_recently_used_go_first_when_the_budget_is_full() -> None:
    caches = KeptCaches(3 * 4 * 8)
    for start in (1, 2, 3):
        caches.add(state((start, 0, 0, 0)))
    caches.longest((1, 0, 0, 0, 5), anywhere)
    caches.add(state((4, 0, 0, 0)))

    assert [caches.longest((start, 0, 0, 0, 5), anywhere).keys[:1] for start in (1, 2, 3, 4)] == [(1,), (), (3,), (4,)]
    assert caches.bytes <= 3 * 4 * 8


def test_without_a_budget_nothing_is_kept() -> None:
    caches = KeptCaches(0)
    caches.add(state((1, 2)))

    assert caches.longest((1, 2, 3), anywhere) == NOTHING


def test_no_prompt_is_cut_where_it_may_not_be() -> None:
    caches = KeptCaches(10**6)
    caches.add(state((1, -7, -7, -7, 2)))

    assert caches.longest((1, -7, -7, -7, 3), lambda at: 1 if 1 < at < 4 else at).keys == (1, -7, -7, -7)
    assert caches.longest((1, -7, -7, 5), lambda at: 1 if 1 < at < 4 else at).keys == (1,)
