"""Whom to observe: each service with the pods that serve each phase."""

from __future__ import annotations

from equipoise.api.identity import Phase
from equipoise.api.service import InferenceService
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.perf.types import Targets
from equipoise.reconcile.moves.drained import ENGINE_PORT
from equipoise.reconcile.workload.world import World


def scope_of(resource: InferenceService, served_name: str, world: World) -> ServiceScope:
    """The scope of one service: draining and terminating pods belong to no phase."""
    targets = resource.spec.targets
    pods: dict[Phase, tuple[PodScope, ...]] = {}
    for phase in Phase:
        pods[phase] = tuple(
            PodScope(pod.name, pod.serving_since_seconds, pod.deployment, f"{pod.ip}:{ENGINE_PORT}" if pod.ip else "")
            for pod in world.pods
            if pod.variant.phase is phase and not pod.draining and not pod.terminating
        )
    return ServiceScope(
        key=resource.key,
        engine=resource.spec.engine.type.value,
        served_model_name=served_name,
        targets=Targets(targets.ttft_seconds, targets.tpot_seconds, targets.percentile),
        pods=pods,
    )
