"""How many more replicas of a variant could start now, on top of all that is counted or promised to anybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from equipoise.api.identity import Variant
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Fleet
from equipoise.reconcile.capacity.inputs import read_fleet
from equipoise.reconcile.capacity.quota import quota_gpus
from equipoise.reconcile.capacity.reserve import reserve, unbound_gpus
from equipoise.reconcile.kube.kinds import POD, RESOURCE_QUOTA
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import variant_of_pod
from equipoise.reconcile.workload.world import World


def room_for(
    store: Store, records: Records, resource: InferenceService, world: World, variants: Iterable[Variant]
) -> dict[Variant, int]:
    """Replicas of each variant, each looked at alone: free GPUs less promises, inside the service's own bounds."""
    bound: Counter[Variant] = Counter()
    for pod in store.all(POD):
        variant = variant_of_pod(pod) if pod["spec"].get("nodeName") else None
        if variant is not None:
            bound[variant] += 1
    others = (records.of(key) for key in records.services() - {resource.key})
    promises: list[Mapping[Variant, int]] = [world.live, *(_promised(record) for record in others)]
    fleet = reserve(read_fleet(store, lambda key: True), unbound_gpus(promises, bound))
    gpus = _gpus_left(store, resource, world, fleet)
    return {variant: _replicas(fleet, variant, gpus, _usd_left(resource, world, fleet)) for variant in variants}


def _promised(record: Record) -> Mapping[Variant, int]:
    """What another service is to have: GPUs that a handover has freed for it are not free for anybody else."""
    return record.decision.wanted if record.decision is not None else record.allocation or {}


def _gpus_left(store: Store, resource: InferenceService, world: World, fleet: Fleet) -> float:
    """GPUs that spec.capacity.maxGPUs and the namespace's quota leave; infinite without either."""
    held = sum(variant.shape.gpus_per_replica for variant in _counted(world))
    most = resource.spec.capacity.max_gpus
    resources = {pool.resource_name for pool in fleet.pools}
    quota = quota_gpus(store.all(RESOURCE_QUOTA, resource.key.namespace), resources, held)
    return min([float("inf"), *(bound - held for bound in (most, quota) if bound is not None)])


def _usd_left(resource: InferenceService, world: World, fleet: Fleet) -> float:
    most = resource.spec.capacity.max_cost_usd_per_hour
    if most is None:
        return float("inf")
    return most - sum(_price(fleet, variant) for variant in _counted(world))


def _counted(world: World) -> list[Variant]:
    """A variant for each replica that has a pod, or is counted and will have one."""
    pods = Counter(pod.variant for pod in world.pods)
    return [variant for variant in {*pods, *world.live} for _ in range(max(pods[variant], world.live.get(variant, 0)))]


def _price(fleet: Fleet, variant: Variant) -> float:
    pool = fleet.pool(variant.pool)
    return pool.price_usd_per_gpu_hour * variant.shape.gpus_per_replica if pool is not None else 0.0


def _replicas(fleet: Fleet, variant: Variant, gpus_left: float, usd_left: float) -> int:
    pool, width = fleet.pool(variant.pool), variant.shape.gpus_per_replica
    if pool is None or gpus_left < width or usd_left < _price(fleet, variant):
        return 0
    return sum(node.free_gpus // width for node in pool.nodes)
