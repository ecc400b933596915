"""Which pods to give up first."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.reconcile.view.pods import EnginePod


def by_least_loss(pods: Iterable[EnginePod]) -> list[EnginePod]:
    """Pods in the order in which losing them costs least.

    Without a node first, then not ready, then those already out of routing, then the youngest (the oldest have the warmest
    caches), names last so that equal input gives equal output.
    """
    return sorted(pods, key=lambda pod: (pod.bound, pod.ready, not pod.draining, -pod.created_seconds, pod.name))
