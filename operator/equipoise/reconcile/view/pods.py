"""Engine pods as the reconciler sees them, read from raw Pod objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from equipoise.api import labels
from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.reconcile.clock import parse_rfc3339

PHASE_SINCE = "equipoise.dev/phase-since"  # annotation: RFC 3339, when a flip brought the pod into its phase
DRAINING_SINCE = "equipoise.dev/draining-since"  # annotation: RFC 3339, when the pod was taken out of routing
ADOPTED_COST, DRAINING_COST, RELEASED_COST = (
    100,
    -100,
    -1000,
)  # pod-deletion-cost: a ReplicaSet deletes the lowest first, all else being equal


@dataclass(frozen=True, slots=True)
class EnginePod:
    """One engine pod. Times are seconds since the epoch, None where the API does not say."""

    namespace: str
    name: str
    uid: str
    deployment: str  # the variant label: the Deployment it belongs to
    variant: Variant
    revision: str
    ready: bool
    bound: bool  # has a node, hence holds its GPUs
    terminating: bool
    draining: bool  # out of routing, still serving what it has
    ip: str
    node: str
    created_seconds: float
    scheduled_seconds: float | None
    ready_since_seconds: float | None
    draining_since_seconds: float | None
    phase_since_seconds: float | None = None  # when a flip brought it into its phase
    unschedulable_message: str = ""
    released: bool = False  # marked as the one that its ReplicaSet deletes first
    restarts: int = 0
    unready_since_seconds: float | None = None  # since when it is not ready; None while it is, and before its node has said so
    trouble: str = ""  # why its container does not run: CrashLoopBackOff, ImagePullBackOff, …

    @property
    def serving_since_seconds(self) -> float | None:
        """Since when it has been ready in its present phase; None while it is not ready."""
        if self.ready_since_seconds is None or not self.ready:
            return None
        return max(self.ready_since_seconds, self.phase_since_seconds or 0.0)

    @property
    def serving(self) -> bool:
        """Ready and in routing."""
        return self.ready and not self.draining and not self.terminating


def variant_of_pod(pod: Mapping[str, Any]) -> Variant | None:
    """The variant a pod belongs to by its labels; None for pods that are not engines of Equipoise."""
    metadata = pod.get("metadata") or {}
    found = metadata.get("labels") or {}
    if found.get(labels.MANAGED_BY) != labels.MANAGED_BY_VALUE:
        return None
    service, component, pool, shape = (found.get(name) for name in (labels.SERVICE, labels.COMPONENT, labels.POOL, labels.SHAPE))
    if not (service and pool and shape) or component not in {phase.value for phase in Phase}:
        return None
    return _variant(metadata.get("namespace", ""), service, component, pool, shape)


@lru_cache(maxsize=65_536)
def _variant(namespace: str, service: str, component: str, pool: str, shape: str) -> Variant | None:
    """Every pass reads every pod's labels; there are far fewer variants than pods."""
    try:
        return Variant(ServiceKey(namespace, service), Phase(component), pool, Shape.parse(shape))
    except ValueError:
        return None


def engine_pod(pod: Mapping[str, Any]) -> EnginePod | None:
    """Read one Pod; None when it is no engine of Equipoise or has ended (its GPUs are free again)."""
    variant = variant_of_pod(pod)
    status = pod.get("status") or {}
    if variant is None or status.get("phase") in {"Succeeded", "Failed"}:
        return None
    metadata = pod["metadata"]
    found = metadata.get("labels") or {}
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
    containers = status.get("containerStatuses") or ()
    return EnginePod(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        deployment=found.get(labels.VARIANT, ""),
        variant=variant,
        revision=found.get(labels.REVISION, ""),
        ready=ready.get("status") == "True",
        bound=bool((pod.get("spec") or {}).get("nodeName")),
        terminating=bool(metadata.get("deletionTimestamp")),
        draining=found.get(labels.ROLE) == labels.ROLE_DRAINING,
        ip=status.get("podIP", ""),
        node=(pod.get("spec") or {}).get("nodeName", "") or "",
        created_seconds=_time(metadata.get("creationTimestamp")) or 0.0,
        scheduled_seconds=_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        ready_since_seconds=_time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        draining_since_seconds=_time((metadata.get("annotations") or {}).get(DRAINING_SINCE)),
        phase_since_seconds=_time((metadata.get("annotations") or {}).get(PHASE_SINCE)),
        unschedulable_message=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        released=_released((metadata.get("annotations") or {}).get(labels.DELETION_COST)),
        restarts=sum(int(item.get("restartCount") or 0) for item in containers),
        unready_since_seconds=_time(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None,
        trouble=_trouble(containers),
    )


def _time(text: Any) -> float | None:
    try:
        return parse_rfc3339(text) if text else None
    except ValueError:
        return None


def _released(text: Any) -> bool:
    try:
        return int(text or 0) <= RELEASED_COST
    except (TypeError, ValueError):
        return False


def _trouble(containers: Any) -> str:
    for item in containers:
        waiting = (item.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return f"{reason}: {waiting.get('message', '')}".rstrip(": ")
    return ""
