"""Nodes and their GPUs: who holds what, what it has cost, and the fleet as the operator would read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from equipoise.api.identity import Variant
from equipoise.fleet.types import Fleet, NodeCapacity, Pool
from equipoise.simulate.loop.setup import PoolSetup


@dataclass(slots=True)
class Node:
    """One node. `held` counts pods per variant, draining ones too."""

    name: str
    pool: str
    gpus: int
    held: Counter[Variant] = field(default_factory=Counter)
    usable: bool = True

    @property
    def free(self) -> int:
        """GPUs that a new pod could take."""
        return self.gpus - sum(v.shape.gpus_per_replica * n for v, n in self.held.items()) if self.usable else 0


class Hardware:
    """All nodes. GPUs are paid for from binding to release; `gpu_seconds` and `cost_usd` grow with `pay_until`."""

    def __init__(self, pools: tuple[PoolSetup, ...]) -> None:
        self.pools = {pool.name: pool for pool in pools}
        self.nodes = [Node(f"{pool.name}-{i}", pool.name, pool.gpus_per_node) for pool in pools for i in range(pool.nodes)]
        self.gpu_seconds = {pool.name: 0.0 for pool in pools}
        self._paid_seconds = 0.0

    def pay_until(self, now: float) -> None:
        """Book what is held up to now."""
        elapsed = now - self._paid_seconds
        if elapsed <= 0.0:
            return
        self._paid_seconds = now
        for node in self.nodes:
            used = sum(variant.shape.gpus_per_replica * count for variant, count in node.held.items())
            self.gpu_seconds[node.pool] += used * elapsed

    @property
    def cost_usd(self) -> float:
        """What the held GPUs have cost."""
        return sum(self.pools[name].price * seconds / 3600.0 for name, seconds in self.gpu_seconds.items())

    def bind(self, variant: Variant, now: float) -> Node | None:
        """Take the GPUs of one replica on the fullest node of its pool where they fit; None when there are none."""
        need = variant.shape.gpus_per_replica
        fitting = [node for node in self.nodes if node.pool == variant.pool and node.free >= need]
        if not fitting:
            return None
        self.pay_until(now)
        node = min(fitting, key=lambda node: (node.free, node.name))
        node.held[variant] += 1
        return node

    def release(self, node: Node, variant: Variant, now: float) -> None:
        """The replica has left."""
        self.pay_until(now)
        node.held[variant] -= 1

    def rename(self, node: Node, old: Variant, new: Variant) -> None:
        """A flip: the same GPUs, another variant."""
        node.held[old] -= 1
        node.held[new] += 1

    def fleet(self) -> Fleet:
        """As `fleet.discover` would read it from the cluster."""
        pools = []
        for name, setup in self.pools.items():
            nodes = tuple(
                NodeCapacity(
                    node.name,
                    node.gpus,
                    own_gpus=_own(node),
                    usable=node.usable,
                    unusable_reason="" if node.usable else "NotReady",
                )
                for node in self.nodes
                if node.pool == name
            )
            pools.append(
                Pool(name, setup.catalogue_device, nodes, setup.price, network_bytes_per_second=setup.network_bytes_per_second)
            )
        return Fleet(tuple(sorted(pools, key=lambda pool: pool.name)))


def _own(node: Node) -> dict[Variant, int]:
    return {variant: variant.shape.gpus_per_replica * count for variant, count in node.held.items() if count > 0}
