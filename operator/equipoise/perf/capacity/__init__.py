"""What one ready replica sustains inside the targets, per phase."""

from __future__ import annotations

from functools import lru_cache

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Device
from equipoise.perf.capacity.decode import decode_capacity
from equipoise.perf.capacity.group import LARGEST_GROUP, member_capacity
from equipoise.perf.capacity.prefill import prefill_capacity
from equipoise.perf.capacity.transfer import kv_transfer_seconds, most_prompt_tokens_per_second
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload


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
    speed: float = 1.0,
) -> ReplicaCapacity | Refusal:
    """Tokens/s that one ready replica sustains inside the targets, or a Refusal with numbers; never zero, never infinite.

    `network_bytes_per_second` is the replica's link to the other phase. `kv_hop` False: both phases in one engine, so nothing is
    moved. `replicas_sharing_queue` > 1 counts on a router that sends each request to the least loaded of so many replicas: then
    they share their fluctuations, and each sustains more (`capacity_at_demand` finds the number). With random or round-robin
    routing it must stay 1. `speed` is what calibration found: step times are divided by it. Results are cached by value; round
    what you observe (`Workload.rounded`) to make use of it.
    """
    return _cached(
        phase, model, device, shape, workload, targets, network_bytes_per_second, kv_hop, replicas_sharing_queue, speed
    )


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
    speed: float,
) -> ReplicaCapacity | Refusal:
    if kv_hop and network_bytes_per_second <= 0:
        return Refusal(
            "NoNetwork", f"the link between the phases is given as {network_bytes_per_second:g} bytes/s, so no KV can move"
        )
    of_phase = prefill_capacity if phase is Phase.PREFILL else decode_capacity
    return of_phase(model, device, shape, workload, targets, network_bytes_per_second, kv_hop, servers, speed)


def group_capacities(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    *,
    network_bytes_per_second: float,
    kv_hop: bool = True,
    largest_group: int = LARGEST_GROUP,
    speed: float = 1.0,
) -> tuple[ReplicaCapacity, ...] | Refusal:
    """What a replica sustains alone, as one of two that share arrivals, and so on up to `largest_group`."""
    found = []
    for replicas in range(1, largest_group + 1):
        capacity = _cached(phase, model, device, shape, workload, targets, network_bytes_per_second, kv_hop, replicas, speed)
        if isinstance(capacity, Refusal):
            return capacity
        found.append(capacity)
    return tuple(found)


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
    speed: float = 1.0,
) -> ReplicaCapacity | Refusal:
    """Capacity of one replica as a member of the group that this demand needs (`member_capacity`), or a Refusal."""
    group = group_capacities(
        phase, model, device, shape, workload, targets,
        network_bytes_per_second=network_bytes_per_second, kv_hop=kv_hop, largest_group=largest_group, speed=speed,
    )  # fmt: skip
    return group if isinstance(group, Refusal) else member_capacity(group, demand_tokens_per_second)


__all__ = [
    "LARGEST_GROUP",
    "capacity_at_demand",
    "group_capacities",
    "kv_transfer_seconds",
    "member_capacity",
    "most_prompt_tokens_per_second",
    "replica_capacity",
]
