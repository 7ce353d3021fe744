"""Records which prefixes of prompts are known: the token ids of each text, the blocks that are still in the KV cache,
and the prompts that are being computed.

All records are lost when this process ends. Ids are then encoded again, and no block is reused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

CHAINS = 256
CHAIN_TOKENS = 2_000_000
MIN_SHARED = 64
"""A prompt waits until another prompt is computed only if it can then reuse at least this number of tokens."""


class TokenChains:
    """The token ids of known texts. Each text is a prompt followed by its answer.

    The ids that the model generated are stored; they are not computed from the answer's text. Models also write token
    sequences that encoding their text would not produce, and the cached prefix would then end inside such an answer.
    The least recently used texts are dropped first.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, list[int]] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._ids)

    def longest(self, text: str) -> tuple[str, list[int]]:
        """Return the longest known text with which ``text`` begins, and its ids; an empty text and an empty list if
        there is none."""
        longest_text = max((key for key in self._ids if text.startswith(key)), key=len, default="")
        if not longest_text:
            return "", []
        self._ids.move_to_end(longest_text)
        return longest_text, self._ids[longest_text]

    def add(self, text: str, ids: Sequence[int]) -> None:
        self._tokens += len(ids) - len(self._ids.pop(text, ()))
        self._ids[text] = list(ids)
        while len(self._ids) > CHAINS or (self._tokens > CHAIN_TOKENS and len(self._ids) > 1):
            _, oldest = self._ids.popitem(last=False)
            self._tokens -= len(oldest)


class CachedBlocks:
    """Estimates which whole blocks of which prefixes are in the KV cache.

    The library does not report which blocks it reused, so this class keeps a block table of its own that imitates the
    library's. A block is identified by all ids from the beginning of its prompt to its own end. Each block of a
    finished or running request, including a last block that is only partly filled, counts as cached until ``blocks``
    newer blocks were added.

    The estimate can be wrong in two ways. It is too low by up to ``block`` - 1 tokens if the library reuses a partly
    filled last block. It is too high if the cache is full and the library has already dropped a block that still counts
    here; the time to the first token then shows the difference.
    """

    def __init__(self, block: int, blocks: int) -> None:
        self._block = block
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    @property
    def keeps_prefixes(self) -> bool:
        return self._blocks > 0

    def count_reused(self, ids: Sequence[int]) -> int:
        """Return the number of tokens at the beginning of this prompt that do not have to be computed again. The last
        token is never among them, because its logits are needed."""
        count = 0
        for _, key in self._keys(ids):
            if key not in self._known:
                break
            self._known.move_to_end(key)
            count += self._block
        return min(count, max(0, len(ids) - 1))

    def add(self, ids: Sequence[int]) -> None:
        parent = 0
        for start, key in self._keys(ids):
            if key not in self._known:
                self._fill(parent, ids[start : start + self._block - 1])
            self._touch(key)
            parent = key
        rest = ids[len(ids) - len(ids) % self._block :]
        if rest:
            self._fill(parent, rest)
            self._touch(hash((parent, *rest)))
        while len(self._known) > self._blocks:
            self._known.popitem(last=False)

    def _touch(self, key: int) -> None:
        self._known[key] = None
        self._known.move_to_end(key)

    def _fill(self, parent: int, ids: Sequence[int]) -> None:
        """Forget the partly filled blocks after the block ``parent`` that contain only a beginning of ``ids``, because
        the library now adds the rest of ``ids`` to them."""
        for end in range(1, len(ids) + 1):
            self._known.pop(hash((parent, *ids[:end])), None)

    def _keys(self, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield (position of its first id, key) for each whole block."""
        key = 0
        for start in range(0, len(ids) - self._block + 1, self._block):
            key = hash((key, *ids[start : start + self._block]))
            yield start, key


class RunningPrompts:
    """The prompts that are being computed. Used in one event loop. Requests that arrive together with the same long
    beginning, such as the samples of a vote, would each compute it, because the KV cache gets a prompt's blocks only
    while the prompt is computed. ``cached`` is the record of the cache's blocks; if it has no blocks, no request
    waits."""

    def __init__(self, cached: CachedBlocks) -> None:
        self._cached = cached
        self._running: dict[asyncio.Event, tuple[Sequence[int], int]] = {}

    @asynccontextmanager
    async def computing(self, ids: Sequence[int]) -> AsyncGenerator[tuple[int, Callable[[], None]], None]:
        """Context manager in which the prompt ``ids`` is computed. It yields the number of tokens at the beginning that
        are in the cache, and a function to be called when the prompt is computed. If the context ends before, the
        prompt's blocks do not count as cached.

        Before it begins, the context waits for each other prompt that is being computed, if this prompt can then take
        at least MIN_SHARED more tokens from the cache, and if these are at least half as many tokens as the other
        prompt computes. To wait for a long prompt that shares little would take more time than it saves."""
        while (other := self._running_prompt_to_share(ids)) is not None:
            await other.wait()
        reused = self._cached.count_reused(ids)
        computed = asyncio.Event()
        self._running[computed] = (ids, reused)

        def leave() -> None:
            self._running.pop(computed, None)
            computed.set()

        def finish() -> None:
            if not computed.is_set():
                self._cached.add(ids)
                leave()

        try:
            yield reused, finish
        finally:
            leave()

    def _running_prompt_to_share(self, ids: Sequence[int]) -> asyncio.Event | None:
        if not self._cached.keeps_prefixes:
            return None
        reused = self._cached.count_reused(ids)
        for computed, (other, start) in self._running.items():
            spared = _count_shared(ids, other) - reused
            if spared >= MIN_SHARED and 2 * spared >= len(other) - start:
                return computed
        return None


def _count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of equal ids at the beginning of both prompts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))
