"""Which prefixes the worker knows: the token ids behind a text, and the blocks still in the KV cache.

Both are caches of this process: after a restart ids come from encoding and nothing is reused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

CHAINS = 256
CHAIN_TOKENS = 2_000_000


class TokenChains:
    """The ids that a text had when it was prompt and answer.

    Generated ids are kept, never decoded and encoded again: models also write tokenisations that encoding would not
    give, and then the cached prefix would end inside that answer. Least recently used chains go first.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, list[int]] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._ids)

    def longest(self, text: str) -> tuple[str, list[int]]:
        """The longest known text that ``text`` begins with, and its ids; empty when there is none."""
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
    """Which whole blocks of which prefixes are in the KV cache, as far as can be told from outside.

    The library does not report what it reused, so this mirrors its block table: a block is known by the ids from the
    beginning of its prompt to its end; every block of a finished or running request, its last and partly filled one
    too, is there until ``blocks`` newer ones came. It can be wrong in two ways. Too low: a partly filled last block may
    be reused too (up to ``block`` - 1 tokens). Too high: once the cache is full, the library may already have dropped a
    block that this still counts; then the time to first token shows it.
    """

    def __init__(self, block: int, blocks: int) -> None:
        self._block = block
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def reused(self, ids: Sequence[int]) -> int:
        """Tokens of this prompt that need not be computed again. The last token always is: its logits are needed."""
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
        """A block that held fewer of these ids holds all of them now."""
        for end in range(1, len(ids) + 1):
            self._known.pop(hash((parent, *ids[:end])), None)

    def _keys(self, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Where each whole block begins, and what it is known by."""
        key = 0
        for start in range(0, len(ids) - self._block + 1, self._block):
            key = hash((key, *ids[start : start + self._block]))
            yield start, key
