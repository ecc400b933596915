"""The prefix cache of one replica: blocks known by hash, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict

HASH_BLOCK_TOKENS = 512  # tokens one hash id of a Mooncake trace stands for (FAST'25 release)


class PrefixCache:
    """Holds as many hashed blocks as the KV cache has room for.

    Simplification: cached blocks do not compete with blocks in use, and two requests that share a prefix hold it twice.
    """

    __slots__ = ("_capacity", "_entries")

    def __init__(self, kv_tokens: int) -> None:
        self._capacity = kv_tokens // HASH_BLOCK_TOKENS
        self._entries: OrderedDict[int, None] = OrderedDict()

    def hit_tokens(self, hash_ids: tuple[int, ...], prompt_tokens: int) -> int:
        """Tokens of the longest known prefix. The last token is always computed, as in vLLM: something must be sampled from."""
        hits = self.known_tokens(hash_ids, prompt_tokens)
        for hash_id in hash_ids[: -(-hits // HASH_BLOCK_TOKENS)]:
            self._entries.move_to_end(hash_id)
        return hits

    def known_tokens(self, hash_ids: tuple[int, ...], prompt_tokens: int) -> int:
        """The same without counting as a use."""
        hits = 0
        for hash_id in hash_ids:
            if hash_id not in self._entries:
                break
            hits += HASH_BLOCK_TOKENS
        return min(hits, prompt_tokens - 1)

    def insert(self, hash_ids: tuple[int, ...]) -> None:
        """Remember a prompt's blocks, newest use last."""
        entries = self._entries
        for hash_id in hash_ids:
            entries[hash_id] = None
            entries.move_to_end(hash_id)
        while len(entries) > self._capacity:
            entries.popitem(last=False)
