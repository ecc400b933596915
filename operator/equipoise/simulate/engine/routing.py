"""How a router picks a prefill and a decode replica."""

from __future__ import annotations

from random import Random
from typing import Protocol

from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request


class RoutingPolicy(Protocol):
    """Picks one of the replicas in routing; the list is never empty. One object serves one phase."""

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The replica to send the request to."""


class RoundRobin:
    """Each in turn: vllm-router's `round_robin`."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The next in turn."""
        self._turn = turn = self._turn + 1
        return replicas[turn % len(replicas)]


class LeastLoaded:
    """The fewest requests under way, the first of equals: what a router that counts its own requests sees."""

    __slots__ = ()

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The replica with the fewest unfinished requests."""
        return min(replicas, key=requests_under_way)


class PowerOfTwo:
    """Two at random, the less loaded of them: vllm-router's `power_of_two`. Deterministic by seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The one of two with fewer requests under way."""
        if len(replicas) == 1:
            return replicas[0]
        one, other = self._random.sample(replicas, 2)
        return one if requests_under_way(one) <= requests_under_way(other) else other


class CacheAware:
    """vllm-router's and sglang-router's `cache_aware`.

    When the loads lie further apart than the threshold, the least loaded. Else the replica that knows most of the prompt's
    prefix, if that is more than `cache_threshold` of it; else the one sent the fewest tokens: its cache has most room.
    """

    __slots__ = ("_sent_tokens", "balance_abs_threshold", "balance_rel_threshold", "cache_threshold")

    def __init__(self, balance_abs_threshold: int = 64, balance_rel_threshold: float = 1.5, cache_threshold: float = 0.3) -> None:
        self.balance_abs_threshold = balance_abs_threshold
        self.balance_rel_threshold = balance_rel_threshold
        self.cache_threshold = cache_threshold
        self._sent_tokens: dict[int, int] = {}

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The replica by load, by prefix, or by what it has been sent."""
        loads = [requests_under_way(replica) for replica in replicas]
        least, most = min(loads), max(loads)
        chosen: Replica | None = None
        if most - least > self.balance_abs_threshold and most > self.balance_rel_threshold * least:
            chosen = replicas[loads.index(least)]
        elif request.hash_ids is not None:
            hits = [replica.prefix_hit_tokens(request) for replica in replicas]
            if max(hits) > self.cache_threshold * request.prompt_tokens:
                chosen = replicas[hits.index(max(hits))]
        sent = self._sent_tokens
        if chosen is None:
            chosen = min(replicas, key=lambda replica: sent.get(replica.number, 0))
        sent[chosen.number] = sent.get(chosen.number, 0) + request.prompt_tokens
        return chosen


def requests_under_way(replica: Replica) -> int:
    """What a router counts as a replica's load: requests sent there, or promised to it for their decode leg, and not answered."""
    return replica.unfinished_requests() + replica.promised


class ShortestPrefill:
    """Token-aware choice of a prefill replica: the least time until it has worked off its queue and this prompt.

    The speed of each replica counts, so a mixed pool is used in proportion.
    """

    __slots__ = ()

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The replica that would be done first."""
        tokens = request.prompt_tokens
        return min(replicas, key=lambda replica: (replica.queued_tokens + tokens) * replica.spec.step_times.prefill_per_token)


class LightestDecode:
    """Token-aware choice of a decode replica: the shortest step with this request's KV added, full ones last."""

    __slots__ = ()

    def choose(self, replicas: list[Replica], request: Request) -> Replica:
        """The replica where a step would be shortest among those with room for the prompt."""
        tokens = request.prompt_tokens

        def cost(replica: Replica) -> tuple[bool, float]:
            kv_tokens = replica.used_blocks * replica.block_size + tokens
            waiting = sum(request.prompt_tokens for request in replica.waiting)
            full = kv_tokens + waiting > replica.spec.kv_tokens
            batch = replica.batch.size + len(replica.loading) + len(replica.loaded) + len(replica.waiting) + 1
            return full, replica.spec.step_times.decode_step_seconds(batch, kv_tokens + waiting)

        return min(replicas, key=cost)
