"""What the cluster has of each variant of a service, from its Deployments and pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from equipoise.api.identity import Variant
from equipoise.decide.types import VariantStatus
from equipoise.reconcile.view.pods import EnginePod, variant_of_pod
from equipoise.render.names import deployment_name

_STARTUPS_REMEMBERED = 9  # an odd number of the latest starts: their median shrugs off one slow image pull


def variant_of_deployment(deployment: Mapping[str, Any]) -> Variant | None:
    """The variant a Deployment stands for, from its pod template's labels; None for routers and strangers."""
    metadata = deployment.get("metadata") or {}
    template = ((deployment.get("spec") or {}).get("template") or {}).get("metadata") or {}
    return variant_of_pod({"metadata": {"namespace": metadata.get("namespace", ""), "labels": template.get("labels") or {}}})


def live_counts(deployments: Iterable[Mapping[str, Any]]) -> dict[Variant, int]:
    """Replicas that each variant's Deployments ask for now, all revisions together."""
    result: dict[Variant, int] = {}
    for deployment in deployments:
        variant = variant_of_deployment(deployment)
        if variant is not None:
            replicas = (deployment.get("spec") or {}).get("replicas")
            result[variant] = result.get(variant, 0) + (1 if replicas is None else int(replicas))
    return result


def variant_statuses(live: Mapping[Variant, int], pods: Sequence[EnginePod], now_seconds: float) -> tuple[VariantStatus, ...]:
    """One status per variant that has a Deployment or a pod, in a fixed order."""
    grouped: dict[Variant, list[EnginePod]] = {variant: [] for variant in live}
    for pod in pods:
        grouped.setdefault(pod.variant, []).append(pod)
    return tuple(_status(variant, live.get(variant, 0), grouped[variant], now_seconds) for variant in sorted(grouped))


def _status(variant: Variant, desired: int, pods: Sequence[EnginePod], now_seconds: float) -> VariantStatus:
    draining = [pod for pod in pods if pod.bound and (pod.terminating or pod.draining)]
    staying = [pod for pod in pods if not pod.terminating and not pod.draining]
    pending = [pod for pod in staying if not pod.bound]
    return VariantStatus(
        variant=variant,
        desired=desired,
        ready=sum(pod.ready for pod in staying),
        starting=sum(pod.bound and not pod.ready for pod in staying),
        pending=len(pending),
        draining=len(draining),
        oldest_pending_seconds=max((now_seconds - pod.created_seconds for pod in pending), default=0.0),
        startup_seconds=learned_startup_seconds(pods),
        name=deployment_name(variant),
    )


def learned_startup_seconds(pods: Iterable[EnginePod]) -> float | None:
    """Scheduled to Ready, the median over the latest starts of pods that never restarted; None when none was seen.

    Readiness lost and regained would look like a long start, so a pod whose Ready is younger than its start by more than any
    sensible load time is judged by the median of its siblings, which is what the median is for.
    """
    started = sorted(
        (pod for pod in pods if pod.ready_since_seconds is not None and pod.scheduled_seconds is not None and not pod.restarts),
        key=lambda pod: pod.created_seconds,
    )[-_STARTUPS_REMEMBERED:]
    if not started:
        return None
    return float(median(max(0.0, (pod.ready_since_seconds or 0.0) - (pod.scheduled_seconds or 0.0)) for pod in started))
