"""How a router picks a prefill and a decode replica."""

from __future__ import annotations

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
        return min(replicas, key=Replica.unfinished_requests)


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
