"""GPUs that are spoken for but not yet held: decided replicas whose pods have no node so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from equipoise.api.identity import Variant
from equipoise.fleet.types import Fleet, NodeCapacity, Pool


def unbound_gpus(allocations: Iterable[Mapping[Variant, int]], bound: Mapping[Variant, int]) -> dict[str, list[int]]:
    """Per pool, the GPUs of each decided replica that no node holds yet, the widest first.

    Between a decision and its pods' binding the same GPU looks free to the next service; two services placed within that
    moment would both be given it.
    """
    result: dict[str, list[int]] = {}
    for allocation in allocations:
        for variant, count in allocation.items():
            missing = count - bound.get(variant, 0)
            if missing > 0:
                result.setdefault(variant.pool, []).extend([variant.shape.gpus_per_replica] * missing)
    return {pool: sorted(widths, reverse=True) for pool, widths in result.items()}


def reserve(fleet: Fleet, widths: Mapping[str, list[int]]) -> Fleet:
    """The fleet with those GPUs counted as held by others: each replica on the node where it leaves least behind."""
    return replace(fleet, pools=tuple(_reserve_pool(pool, widths.get(pool.name, [])) for pool in fleet.pools))


def _reserve_pool(pool: Pool, widths: list[int]) -> Pool:
    nodes = list(pool.nodes)
    for width in widths:
        fitting = [index for index, node in enumerate(nodes) if node.free_gpus >= width]
        if not fitting:
            continue
        best = min(fitting, key=lambda index: (nodes[index].free_gpus - width, nodes[index].name))
        node: NodeCapacity = nodes[best]
        nodes[best] = replace(node, foreign_gpus=node.foreign_gpus + width)
    return replace(pool, nodes=tuple(nodes)) if widths else pool
