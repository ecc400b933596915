"""What decide() needs to know of speed: which shapes a model can take on a pool, and what one replica sustains there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Pool
from equipoise.perf import memory
from equipoise.perf.capacity import replica_capacity
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload


class Performance(Protocol):
    """A pure source of capacities: equal arguments give equal answers, so that answers may be remembered."""

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        """Shapes in which the weights fit on the pool's device, inside a node of so many GPUs, or why none does."""
        ...

    def capacity(
        self, phase: Phase, model: ModelFacts, pool: Pool, shape: Shape, workload: Workload, targets: Targets
    ) -> ReplicaCapacity | Refusal:
        """What one replica sustains inside the targets, or why it cannot."""
        ...

    def __hash__(self) -> int:
        """Two sources that hash and compare equal give equal answers."""
        ...


@dataclass(frozen=True, slots=True)
class EnginePerformance:
    """The performance model of `equipoise.perf`: fitted step times, else a roofline."""

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        """Shapes that memory allows."""
        return memory.shapes(model, pool.device, gpus_per_node=gpus_per_node)

    def capacity(
        self, phase: Phase, model: ModelFacts, pool: Pool, shape: Shape, workload: Workload, targets: Targets
    ) -> ReplicaCapacity | Refusal:
        """Inside the targets, KV transfer over the pool's network included."""
        return replica_capacity(
            phase, model, pool.device, shape, workload, targets, network_bytes_per_second=pool.network_bytes_per_second
        )
