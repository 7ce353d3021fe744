"""Tests what the worker remembers of earlier prompts."""

from __future__ import annotations

from agent_kernel.engines.local.decoding.known_prefixes import CHAINS, CachedBlocks, TokenChains


def test_the_longest_known_text_wins() -> None:
    chains = TokenChains()
    chains.add("ab", [1])
    chains.add("abc", [1, 2])
    chains.add("xyz", [9])

    assert chains.longest("abcd") == ("abc", [1, 2])


def test_a_text_nobody_has_seen_has_no_chain() -> None:
    chains = TokenChains()
    chains.add("abc", [1])

    assert chains.longest("ab") == ("", [])


def test_the_least_recently_used_chain_goes_first() -> None:
    chains = TokenChains()
    chains.add("first", [1])
    chains.add("second", [2])
    chains.longest("first")
    for number in range(CHAINS - 1):
        chains.add(f"#{number}", [number])

    assert chains.longest("first") == ("first", [1])
    assert chains.longest("second") == ("", [])


def test_only_whole_blocks_from_the_beginning_are_reused() -> None:
    blocks = CachedBlocks(block=4, blocks=100)
    blocks.add([1, 2, 3, 4, 5, 6, 7, 8, 9])

    assert blocks.count_reused([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == 8
    assert blocks.count_reused([1, 2, 3, 4, 5, 6, 7, 0, 9, 10]) == 4
    assert blocks.count_reused([0, 2, 3, 4, 5, 6, 7, 8]) == 0


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    blocks = CachedBlocks(block=4, blocks=100)
    blocks.add([1, 2, 3, 4])

    assert blocks.count_reused([1, 2, 3, 4]) == 3


def test_blocks_beyond_the_cache_are_forgotten_oldest_first() -> None:
    blocks = CachedBlocks(block=2, blocks=2)
    blocks.add([1, 2, 3, 4])
    blocks.add([5, 6])

    assert blocks.count_reused([5, 6, 7]) == 2
    assert blocks.count_reused([1, 2, 3, 4, 5]) == 0
