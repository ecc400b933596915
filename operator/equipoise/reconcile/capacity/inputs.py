"""From the store to what decide() asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.api.service import InferenceService
from equipoise.decide.policy import ServicePolicy
from equipoise.decide.types import PhasePolicy, Scaling, ServiceInput, VariantStatus
from equipoise.fleet.discover import discover
from equipoise.fleet.types import Fleet
from equipoise.reconcile.capacity.quota import quota_gpus
from equipoise.reconcile.kube.kinds import GPU_POOL, NODE, PHASE_SCALE, POD, RESOURCE_QUOTA
from equipoise.reconcile.record import Record
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import variant_of_pod
from equipoise.reconcile.view.variants import variant_statuses
from equipoise.reconcile.workload.world import World
from equipoise.render.names import phase_name


def read_fleet(store: Store, is_known: Callable[[ServiceKey], bool]) -> Fleet:
    """The fleet now. Pods of services that are not `is_known` count as held by others."""

    def own(pod: Mapping[str, Any]) -> Variant | None:
        variant = variant_of_pod(pod)
        return variant if variant is not None and is_known(variant.service) else None

    return discover(store.all(NODE), store.all(POD), store.all(GPU_POOL), own=own)


def service_input(
    store: Store,
    resource: InferenceService,
    policy: ServicePolicy,
    record: Record,
    world: World,
    fleet: Fleet,
    now_seconds: float,
) -> ServiceInput:
    """One service for decide(): policy from the spec, actual state from the world, the last decision as what is desired."""
    key = resource.key
    statuses = _with_decided(variant_statuses(world.live, world.pods, now_seconds), record.allocation or {})
    own_gpus = sum(pod.variant.shape.gpus_per_replica for pod in world.pods)
    resources = {pool.resource_name for pool in fleet.pools}
    return replace(
        policy.service_input(),
        phases={phase: _phase_policy(store, key, phase, policy.phases[phase]) for phase in Phase},
        variants=statuses,
        max_quota_gpus=quota_gpus(store.all(RESOURCE_QUOTA, key.namespace), resources, own_gpus),
        deleting=bool(resource.metadata.deletion_timestamp),
        # The revision is a digest of image, flags and model; two of them while a rollout is under way.
        engine=" ".join(sorted(world.parts)),
    )


def _with_decided(statuses: Iterable[VariantStatus], decided: Mapping[Variant, int]) -> tuple[VariantStatus, ...]:
    """What was decided is what is desired, also while the Deployments still say otherwise (or a hand has changed them)."""
    found = {item.variant: item for item in statuses}
    for variant in decided:
        found.setdefault(variant, VariantStatus(variant))
    return (
        tuple(replace(found[variant], desired=decided.get(variant, 0)) for variant in sorted(found))
        if decided
        else tuple(found[variant] for variant in sorted(found))
    )


def _phase_policy(store: Store, key: ServiceKey, phase: Phase, policy: PhasePolicy) -> PhasePolicy:
    if policy.scaling is not Scaling.EXTERNAL:
        return policy
    scale = store.get(PHASE_SCALE, key.namespace, phase_name(key, phase))
    wanted = ((scale or {}).get("spec") or {}).get("replicas")
    return replace(policy, external_replicas=policy.minimum if wanted is None else int(wanted))
