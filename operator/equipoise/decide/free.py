"""GPUs that a new pod could take at this moment, node by node."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.api.identity import Variant
from equipoise.decide.allocation.space import PoolSpace, chunks_of
from equipoise.decide.allocation.types import NodeSpace
from equipoise.decide.state import ServiceState, unbound
from equipoise.fleet.types import Fleet


class FreeNow:
    """What is free now, less what pods that have no node yet will take. Terminating pods still hold their GPUs."""

    def __init__(self, fleet: Fleet, services: Iterable[ServiceState]) -> None:
        self._spaces = {
            pool.name: PoolSpace([NodeSpace(node.name, node.free_gpus, open=node.usable) for node in pool.nodes])
            for pool in fleet.pools
        }
        self._largest = {pool.name: max((node.allocatable_gpus for node in pool.nodes), default=0) for pool in fleet.pools}
        self.draining: dict[str, int] = {}
        for service in services:
            self._reserve(service)

    def _reserve(self, service: ServiceState) -> None:
        for phase in service.phases.values():
            for variant, count in sorted(phase.current.items()):
                for _ in range(unbound(phase.statuses.get(variant), count)):
                    if not self.take(variant):
                        break
            for variant, status in phase.statuses.items():
                if status.draining:
                    gpus = status.draining * variant.shape.gpus_per_replica
                    self.draining[variant.pool] = self.draining.get(variant.pool, 0) + gpus

    def take(self, variant: Variant) -> bool:
        """Take the GPUs of one new replica, if they are free on a node that fits."""
        space = self._spaces.get(variant.pool)
        if space is None:
            return False
        chunks, gpus = chunks_of(variant.shape, self._largest[variant.pool])
        return space.take(chunks, gpus, displace=False) is not None

    def by_node(self, pool: str) -> dict[str, int]:
        """Free GPUs of a pool's nodes."""
        space = self._spaces.get(pool)
        return dict(zip(space.names, space.free, strict=True)) if space is not None else {}
