"""From nodes, pods and GPUPools, as the API server gives them, to a Fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from equipoise.api.identity import Variant
from equipoise.api.pool import GPUPool
from equipoise.fleet.accounting import Holdings, holdings
from equipoise.fleet.gpu_pools import device_from_spec, read_gpu_pools
from equipoise.fleet.grouping import GpuNode, Group, group_by_device, majority, node_names, read_nodes
from equipoise.fleet.naming import pool_name, unused_name
from equipoise.fleet.prices import default_price
from equipoise.fleet.types import DEFAULT_NETWORK_BYTES_PER_SECOND, Fleet, NodeCapacity, Pool
from equipoise.fleet.usability import unusable_reason


def discover(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    gpu_pools: Iterable[Mapping[str, Any]],
    *,
    own: Callable[[Mapping[str, Any]], Variant | None],
) -> Fleet:
    """Pools of whole GPUs with what is free on each node, and everything that was not understood as `problems`.

    `own` says which variant a pod belongs to, None for pods of others. A GPUPool takes the nodes its selector matches (overlap:
    the first by name); the rest is grouped by device. Never raises for what the cluster holds: what cannot be read is left out
    and named.
    """
    problems: list[str] = []
    definitions = read_gpu_pools(gpu_pools, problems)
    found = read_nodes(nodes, {pool.spec.resource_name for pool in definitions}, problems)
    held = holdings(pods, {node.name: node.resources for node in found}, own)
    taken: dict[str, str] = {}
    pools = []
    for definition in definitions:
        pool = _defined_pool(definition, found, held, taken, problems)
        if pool is not None:
            pools.append(pool)
    pools.extend(
        _discovered_pools([node for node in found if node.name not in taken], held, {pool.name for pool in pools}, problems)
    )
    return Fleet(tuple(sorted(pools, key=lambda pool: pool.name)), tuple(problems))


def _defined_pool(
    definition: GPUPool, nodes: Sequence[GpuNode], held: Holdings, taken: dict[str, str], problems: list[str]
) -> Pool | None:
    name, spec = definition.metadata.name, definition.spec
    selected = [node for node in nodes if spec.resource_name in node.resources and node.matches(spec.node_selector)]
    selector = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
    lost: dict[str, list[GpuNode]] = defaultdict(list)
    for node in selected:
        if node.name in taken:
            lost[taken[node.name]].append(node)
    for other, both in sorted(lost.items()):
        problems.append(
            f"GPUPools {other} and {name} both select {node_names(both)}; {other} has them, as the first by name; "
            "make the selectors disjoint"
        )
    selected = [node for node in selected if node.name not in taken]
    if not selected:
        if not lost:
            problems.append(
                f"GPUPool {name}: no node with {spec.resource_name} matches {selector}; correct the selector or add nodes"
            )
        return None
    groups = group_by_device(selected)
    # Nodes without labels are taken for the pool's device, as long as that is the only one they could be.
    unlabelled = groups.pop(None, []) if len(groups.keys() - {None}) <= 1 else []
    chosen = majority({device: nodes for device, nodes in groups.items() if device is not None}) if groups else Group(None, ())
    members = sorted((*chosen.nodes, *unlabelled), key=lambda node: node.name)
    kept = {node.name for node in members}
    left_out = [node for node in selected if node.name not in kept]
    if left_out:
        problems.append(
            f"GPUPool {name}: {selector} matches devices of several kinds; only {chosen.describe()} belong to it, not "
            f"{node_names(left_out)}; one pool is one device: add a label that tells them apart to the selector"
        )
    device = device_from_spec(spec.device, chosen.device)
    if device is None:
        problems.append(
            f"GPUPool {name}: no label on {node_names(selected)} tells the device; set spec.device.name to one of the catalogue, "
            "or spec.device.memory"
        )
        return None
    if chosen.problem and spec.device.name is None and spec.device.memory_bytes is None:
        problems.append(f"GPUPool {name}: {chosen.problem}")
    taken.update((node.name, name) for node in members)
    default, source = default_price(device)
    price = spec.price_usd_per_gpu_hour
    tolerations = (
        _own_taint(spec.resource_name),
        *(toleration.to_dict() for toleration in spec.tolerations),
    )
    return Pool(
        name=name,
        device=device,
        nodes=_capacities(members, spec.resource_name, held, tolerations, paused=spec.paused),
        price_usd_per_gpu_hour=default if price is None else price,
        resource_name=spec.resource_name,
        node_selector={**spec.node_selector, **(chosen.selector(nodes) if left_out else {})},
        tolerations=tolerations,
        network_domain=spec.network_domain,
        network_bytes_per_second=spec.network_bytes_per_second or DEFAULT_NETWORK_BYTES_PER_SECOND,
        price_source=source if price is None else f"GPUPool {name}",
    )


def _discovered_pools(nodes: Sequence[GpuNode], held: Holdings, names: set[str], problems: list[str]) -> list[Pool]:
    groups = group_by_device(nodes)
    unlabelled = groups.pop(None, [])
    if unlabelled:
        problems.append(
            f"{node_names(unlabelled)}: GPUs, but no label names the product; run GPU Feature Discovery (or AMD's node "
            "labeller) there, or create a GPUPool that selects them and says spec.device"
        )
    pools = []
    for device, members in sorted(groups.items(), key=lambda item: "" if item[0] is None else item[0].name):
        if device is None:
            continue
        group = majority({device: members}, by_label=True)
        kept = {node.name for node in group.nodes}
        left_out = [node for node in members if node.name not in kept]
        if left_out:
            problems.append(
                f"{node_names(left_out)}: same device as {node_names(group.nodes)} ({device.name}) under another label, "
                "which one node selector cannot cover; left out: create a GPUPool for them"
            )
        if group.problem:
            problems.append(f"{node_names(group.nodes)}: {group.problem}")
        name = unused_name(pool_name(device), names)
        names.add(name)
        resource = group.nodes[0].resource
        tolerations = (_own_taint(resource),)
        price, source = default_price(device)
        pools.append(
            Pool(
                name=name,
                device=device,
                nodes=_capacities(group.nodes, resource, held, tolerations, paused=False),
                price_usd_per_gpu_hour=price,
                resource_name=resource,
                node_selector=group.selector(nodes),
                tolerations=tolerations,
                price_source=source,
            )
        )
    return pools


def _own_taint(resource_name: str) -> dict[str, str]:
    """GPU nodes are commonly tainted with the name of their resource, whatever the value, to keep other pods away."""
    return {"key": resource_name, "operator": "Exists"}


def _capacities(
    nodes: Sequence[GpuNode], resource: str, held: Holdings, tolerations: Sequence[Mapping[str, Any]], *, paused: bool
) -> tuple[NodeCapacity, ...]:
    result = []
    for node in sorted(nodes, key=lambda one: one.name):
        foreign, own = held.on(node.name, resource)
        allocatable = node.resources[resource]
        if paused:
            # Room for what is there, none for more: replicas stay, and nothing is placed.
            allocatable = min(allocatable, foreign + sum(own.values()))
        reason = unusable_reason(node.raw, tolerations)
        result.append(NodeCapacity(node.name, allocatable, foreign, own, usable=not reason, unusable_reason=reason))
    return tuple(result)
