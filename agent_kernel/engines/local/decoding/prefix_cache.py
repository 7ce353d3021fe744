"""Tracks known prefixes of prompts: the token ids of each text, and the blocks that are still in the KV cache.

Both are lost when this process ends: ids are then encoded again, and nothing is reused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

CHAINS = 256
CHAIN_TOKENS = 2_000_000


class TokenChains:
    """The ids of known texts, each a prompt with its answer.

    Generated ids are stored, never decoded and encoded again: models also write token sequences that encoding their
    text would not produce, and then the cached prefix would end inside that answer. Least recently used chains are
    dropped first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, list[int]] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._ids)

    def longest(self, text: str) -> tuple[str, list[int]]:
        """Return the longest known text with which ``text`` begins, and its ids; empty if there is none."""
        known = max((key for key in self._ids if text.startswith(key)), key=len, default="")
        if not known:
            return "", []
        self._ids.move_to_end(known)
        return known, self._ids[known]

    def add(self, text: str, ids: Sequence[int]) -> None:
        self._tokens += len(ids) - len(self._ids.pop(text, ()))
        self._ids[text] = list(ids)
        while len(self._ids) > CHAINS or (self._tokens > CHAIN_TOKENS and len(self._ids) > 1):
            _, oldest = self._ids.popitem(last=False)
            self._tokens -= len(oldest)


class CachedBlocks:
    """Estimates which whole blocks of which prefixes are in the KV cache.

    The library does not report what it reused, so this mirrors its block table. A block is identified by the ids
    from the beginning of its prompt to its end; every block of a finished or running request, including its last,
    partly filled one, is there until ``blocks`` newer ones came. It can be wrong in two ways. Too low: a partly filled
    last block may be reused too (up to ``block`` - 1 tokens). Too high: once the cache is full, the library may
    already have dropped a block that still counts here; then the time to first token shows it."""

    def __init__(self, block: int, blocks: int) -> None:
        self._block = block
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def count_reused(self, ids: Sequence[int]) -> int:
        """Return the number of tokens of this prompt that do not have to be computed again. The last token is not among
        them, because its logits are needed."""
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
        """Replace a block that held fewer of these ids."""
        for end in range(1, len(ids) + 1):
            self._known.pop(hash((parent, *ids[:end])), None)

    def _keys(self, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield where each whole block begins, and its key."""
        key = 0
        for start in range(0, len(ids) - self._block + 1, self._block):
            key = hash((key, *ids[start : start + self._block]))
            yield start, key
