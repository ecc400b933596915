"""One service's pods and counts as `decide.rollout` sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from equipoise.api.identity import Phase, Variant
from equipoise.api.service import InferenceService
from equipoise.decide.rollout.types import Allowance, Replica, RolloutInput
from equipoise.reconcile.rollout.memory import RolloutMemory
from equipoise.reconcile.view.pods import EnginePod
from equipoise.reconcile.workload.world import World

BROKEN_SECONDS: Final = 10.0  # readiness that blinks is no reason to give a loaded model up
NO_NODE_SECONDS: Final = 5.0  # the scheduler answers within milliseconds, and again when a GPU is given back


def rollout_input(
    resource: InferenceService,
    memory: RolloutMemory,
    allocation: Mapping[Variant, int],
    world: World,
    now_seconds: float,
    *,
    flips: bool,
    room: Mapping[Variant, int] | None = None,
) -> RolloutInput:
    """All that one look may know."""
    return RolloutInput(
        target=memory.state.target,
        allocation=allocation,
        live={name: part.live for name, part in world.parts.items()},
        replicas=tuple(replica(pod, now_seconds) for pod in world.pods),
        allowances={phase: _allowance(resource, phase, allocation) for phase in Phase},
        room=room or {},
        stable=memory.state.stable,
        flips=flips,
    )


def replica(pod: EnginePod, now_seconds: float) -> Replica:
    """A pod, and in words what keeps it from serving."""
    age = now_seconds - pod.created_seconds
    unready_seconds = now_seconds - (pod.unready_since_seconds or pod.created_seconds)
    broken = not pod.ready and (bool(pod.trouble) or unready_seconds >= BROKEN_SECONDS)
    homeless = not pod.bound and bool(pod.unschedulable_message) and age >= NO_NODE_SECONDS
    message = f"{pod.name} starts, for {max(0.0, age):.0f} s now"
    if pod.trouble:
        message = f"{pod.name}: {pod.trouble}"
    elif homeless:
        message = f"{pod.name} has no node: {pod.unschedulable_message}"
    return Replica(
        name=pod.name,
        variant=pod.variant,
        revision=pod.revision,
        serving=pod.serving,
        broken=broken,
        draining=pod.draining,
        terminating=pod.terminating,
        bound=pod.bound,
        waits_for_node=homeless,
        message=message,
    )


def _allowance(resource: InferenceService, phase: Phase, allocation: Mapping[Variant, int]) -> Allowance:
    """In replicas of the phase as it is wanted now. Only a percentage that covers all of them lets the last one go."""
    rollout = resource.spec.rollout
    count = sum(number for variant, number in allocation.items() if variant.phase is phase)
    unavailable = rollout.max_unavailable_of(count)
    return Allowance(
        surge=rollout.max_surge_of(count),
        unavailable=unavailable,
        may_stop=str(rollout.max_unavailable).endswith("%") and unavailable >= count,
    )
