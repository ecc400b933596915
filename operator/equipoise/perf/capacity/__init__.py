"""What one ready replica sustains inside the targets, per phase."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Device
from equipoise.perf.capacity.decode import decode_capacity
from equipoise.perf.capacity.prefill import prefill_capacity
from equipoise.perf.capacity.transfer import kv_transfer_seconds, most_prompt_tokens_per_second
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload

LARGEST_GROUP: Final = 4


def replica_capacity(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    *,
    network_bytes_per_second: float,
    kv_hop: bool = True,
    replicas_sharing_queue: int = 1,
) -> ReplicaCapacity | Refusal:
    """Tokens/s that one ready replica sustains inside the targets, or a Refusal with numbers; never zero, never infinite.

    `network_bytes_per_second` is the replica's link to the other phase. `kv_hop` False: both phases in one engine, so nothing is
    moved. `replicas_sharing_queue` > 1 counts on a router that sends each request to the least loaded of so many replicas: then
    they share their fluctuations, and each sustains more (`capacity_at_demand` finds the number). With random or round-robin
    routing it must stay 1. Results are cached by value; round what you observe (`Workload.rounded`) to make use of it.
    """
    return _cached(phase, model, device, shape, workload, targets, network_bytes_per_second, kv_hop, replicas_sharing_queue)


@lru_cache(maxsize=65536)
def _cached(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    network_bytes_per_second: float,
    kv_hop: bool,
    servers: int,
) -> ReplicaCapacity | Refusal:
    if kv_hop and network_bytes_per_second <= 0:
        return Refusal(
            "NoNetwork", f"the link between the phases is given as {network_bytes_per_second:g} bytes/s, so no KV can move"
        )
    if phase is Phase.PREFILL:
        return prefill_capacity(model, device, shape, workload, targets, network_bytes_per_second, kv_hop, servers)
    return decode_capacity(model, device, shape, workload, targets, network_bytes_per_second, kv_hop, servers)


def capacity_at_demand(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    demand_tokens_per_second: float,
    *,
    network_bytes_per_second: float,
    kv_hop: bool = True,
    largest_group: int = LARGEST_GROUP,
) -> ReplicaCapacity | Refusal:
    """Capacity of one replica as a member of the group that this demand needs.

    That is the fewest replicas n with n x capacity(n) >= demand. A replica alone must leave much room for waiting (an A100
    that has 0.5 s for prompts of 1,155 tokens: 40 % busy), four that share arrivals less (83 %). The answer depends on the
    demand alone, not on how many there are now, so it does not swing with the count it decides. The `largest_group` of 4 is
    safe for routers that pick the better of two random replicas, as simulation shows.
    """
    for replicas in range(1, largest_group + 1):
        capacity = _cached(phase, model, device, shape, workload, targets, network_bytes_per_second, kv_hop, replicas)
        if isinstance(capacity, Refusal) or capacity.tokens_per_second * replicas >= demand_tokens_per_second:
            break
    return capacity


__all__ = ["capacity_at_demand", "kv_transfer_seconds", "most_prompt_tokens_per_second", "replica_capacity"]
