"""Nodes that are about to go, and what of a service runs there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from equipoise.reconcile.kube.kinds import NODE
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import EnginePod

GOING_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/rebalance-recommendation",
    }
)
"""Taints by which autoscalers and clouds announce that a node is drained or reclaimed."""


def leaving_nodes(store: Store, pods: Iterable[EnginePod]) -> tuple[str, ...]:
    """Nodes with pods of these that are cordoned or announced to go, in a fixed order."""
    return tuple(sorted(name for name in {pod.node for pod in pods if pod.node} if is_leaving(store.get(NODE, None, name))))


def is_leaving(node: Object | None) -> bool:
    """Whether a node takes no more pods because it is to be emptied. One that is gone already, or not seen, is no such case."""
    spec = (node or {}).get("spec") or {}
    return bool(spec.get("unschedulable")) or any(taint.get("key") in GOING_TAINTS for taint in spec.get("taints") or ())
