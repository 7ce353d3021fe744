"""Tests what the worker remembers of earlier prompts."""

from __future__ import annotations

import asyncio

from agent_kernel.engines.local.decoding.known_prefixes import (
    CHAINS,
    MIN_SHARED,
    CachedBlocks,
    RunningPrompts,
    TokenChains,
)

BLOCK = 32


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


def words(count: int, word: int = 1) -> list[int]:
    return [word] * count


async def computes_at_once(prompts: RunningPrompts, ids: list[int]) -> bool:
    """Return whether a prompt is computed without waiting for another one."""
    try:
        async with asyncio.timeout(0.05), prompts.computing(ids):
            return True
    except TimeoutError:
        return False


async def test_a_prompt_waits_for_one_that_computes_at_least_half_of_what_both_share() -> None:
    prompts = RunningPrompts(CachedBlocks(BLOCK, 1_000))
    async with prompts.computing(words(400)):
        assert not await computes_at_once(prompts, words(400))
        assert not await computes_at_once(prompts, words(200) + words(500, 2))
        assert await computes_at_once(prompts, words(199) + words(500, 2))
    async with prompts.computing(words(MIN_SHARED)):
        assert not await computes_at_once(prompts, words(MIN_SHARED))
        assert await computes_at_once(prompts, words(MIN_SHARED - 1))


async def test_a_prompt_whose_beginning_is_cached_does_not_wait_for_another_one() -> None:
    cached = CachedBlocks(BLOCK, 1_000)
    cached.add(words(400))
    prompts = RunningPrompts(cached)
    async with prompts.computing(words(400) + words(400, 2)):
        assert await computes_at_once(prompts, words(400) + words(400, 3))
        assert not await computes_at_once(prompts, words(400) + words(400, 2))


async def test_the_blocks_of_a_prompt_count_as_cached_once_it_is_computed() -> None:
    prompts = RunningPrompts(CachedBlocks(BLOCK, 1_000))
    async with prompts.computing(words(400)):
        pass
    async with prompts.computing(words(400)) as (reused, finish):
        assert reused == 0
        finish()
        assert await computes_at_once(prompts, words(400))
        async with prompts.computing(words(400)) as (again, _):
            assert again >= 400 - BLOCK


async def test_requests_that_wait_for_one_prompt_compute_it_one_after_another_if_it_is_cancelled() -> None:
    prompts = RunningPrompts(CachedBlocks(BLOCK, 1_000))
    running, most = 0, 0

    async def compute() -> None:
        nonlocal running, most
        async with prompts.computing(words(400)):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(compute() for _ in range(5)))
    assert most == 1


async def test_without_a_cache_of_prefixes_no_prompt_waits() -> None:
    prompts = RunningPrompts(CachedBlocks(BLOCK, 0))
    async with prompts.computing(words(400)):
        assert await computes_at_once(prompts, words(400))
