"""Measures the KV cache of transformers' continuous batching, and determines which prefixes are evicted when the cache
is full.

The cache itself belongs to the library. The attributes that this module reads exist in 5.22 and 5.23. If one of them is
missing, fewer figures are reported, and requests still run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BLOCK = 32
"""Number of tokens in a block. Only whole blocks are shared, so with the library's default of 256 a request would
compute 128 tokens again on average."""


def bytes_per_block(config: Any, item: int) -> int:
    """Return the size in bytes of the keys and values of one block in all layers. ``config`` is the configuration of
    the text model, ``item`` is the size in bytes of one number."""
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * config.num_hidden_layers * shared * width * BLOCK * item)


class PagedCache:
    """Reads figures from the cache of a running manager, and changes which prefixes it evicts."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._reused: dict[str, int] = {}
        self.tells_reuse = callable(getattr(cache, "search_prefix_match", None))
        if self.tells_reuse:
            self._search = cache.search_prefix_match
            cache.search_prefix_match = self._note_match
        self.drops_oldest = self._drop_oldest_first()

    @property
    def blocks(self) -> int:
        return int(self._cache.num_blocks)

    @property
    def shares_prefixes(self) -> bool:
        return bool(self._cache.use_prefix_sharing)

    def pop_reused(self, request: str) -> int | None:
        """Return the number of prompt tokens that a request found in the cache, and forget this number. Return None if
        the library does not report it."""
        return self._reused.pop(request, 0) if self.tells_reuse else None

    def forget(self, request: str) -> None:
        self._reused.pop(request, None)

    def usage(self) -> Mapping[str, float]:
        """Return figures for a status display. ``cache_used`` is the share of the cache that running requests hold,
        ``cache_kept`` the share that finished prefixes occupy. These are evicted when space is short."""
        try:
            kept_share = sum(
                len(allocator.ledger.cached_blocks) * allocator.bytes_per_block
                for allocator in self._cache.cache_allocators.values()
            ) / (self._cache.num_sectors * self._cache.bytes_per_sector)
            used = 1.0 - self._cache.compute_free_capacity() - kept_share
        except AttributeError:
            return {}
        return {"cache_used": max(0.0, round(used, 4)), "cache_kept": round(kept_share, 4)}

    def _note_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """Search the cache for the beginning of a prompt, record the number of tokens found, and return it. The
        manager's thread calls this. A request that was evicted and restarted is searched again; only its first result
        counts as reused."""
        matched = int(self._search(request_id, prompt_ids))
        if matched:
            self._reused.setdefault(request_id, matched)
        return matched

    def _drop_oldest_first(self) -> bool:
        """Replace the library's eviction, which removes all finished prefixes when space is short. The new one removes
        the least recently used half; the library calls it again if that is not enough. Return False if the library has
        changed, so that its eviction stays."""
        try:
            ledgers = [allocator.ledger for allocator in self._cache.cache_allocators.values()]
            for ledger in ledgers:
                if not (isinstance(ledger.cached_blocks, dict) and isinstance(ledger.block_to_hash, dict)):
                    return False
                if not (isinstance(ledger.hash_to_block, dict) and callable(ledger.evict_cached_blocks)):
                    return False
        except AttributeError:
            return False
        for ledger in ledgers:
            ledger.evict_cached_blocks = _oldest_half(ledger)
        return True


def _oldest_half(ledger: Any) -> Any:
    def evict() -> list[int]:
        count = (len(ledger.cached_blocks) + 1) // 2
        blocks = [block for block, _ in zip(ledger.cached_blocks, range(count), strict=False)]
        for block in blocks:
            del ledger.cached_blocks[block]
            del ledger.hash_to_block[ledger.block_to_hash.pop(block)]
        return blocks

    return evict
