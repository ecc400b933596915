"""The writes of a plan on pods: adoption, out of routing, back into routing, let go. Each is safe to repeat."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api import labels
from equipoise.api.identity import Variant
from equipoise.reconcile.clock import rfc3339
from equipoise.reconcile.kube.errors import NotFound
from equipoise.reconcile.kube.kinds import POD
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.moves.plan import Adoption, MovePlan
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import ADOPTED_COST, DRAINING_COST, DRAINING_SINCE, PHASE_SINCE, RELEASED_COST, EnginePod
from equipoise.render.names import deployment_name


async def adopt(
    api: KubeApi, store: Store, adoption: Adoption, template_hashes: Mapping[Variant, str], now_seconds: float
) -> bool:
    """Move a running pod to the receiver's Deployment; False while its ReplicaSet is not there yet.

    One patch changes every label that the two Deployments, the router and the metrics go by. The old ReplicaSet then lets the
    pod go and the new one adopts it: same pod, same node, never restarted.
    """
    receiver = adoption.receiver
    template_hash = template_hashes.get(receiver)
    if template_hash is None:
        return False
    changed = {
        labels.VARIANT: deployment_name(receiver),
        labels.COMPONENT: receiver.phase.value,
        labels.ROLE: receiver.phase.value,
        labels.POD_TEMPLATE_HASH: template_hash,
    }
    # Should the receiver's placeholder become ready first, it is still the placeholder that has to go.
    annotations = {PHASE_SINCE: rfc3339(now_seconds), labels.DELETION_COST: str(ADOPTED_COST)}
    body = {"metadata": {"labels": changed, "annotations": annotations}}
    return await _patch(api, store, adoption.pod, body)


async def relabel(api: KubeApi, store: Store, plan: MovePlan, now_seconds: float) -> None:
    """Undrains, drains and releases of a plan."""
    for pod in plan.undrains:
        annotations: Object = {DRAINING_SINCE: None, labels.DELETION_COST: None}
        back = {labels.ROLE: pod.variant.phase.value}
        await _patch(api, store, pod, {"metadata": {"labels": back, "annotations": annotations}})
    for pod in plan.drains:
        # The cost is set long before the count falls: a ReplicaSet that is behind still picks among those that drain.
        since = {DRAINING_SINCE: rfc3339(now_seconds), labels.DELETION_COST: str(DRAINING_COST)}
        await _patch(api, store, pod, {"metadata": {"labels": {labels.ROLE: labels.ROLE_DRAINING}, "annotations": since}})
    for pod in plan.releases:
        await _patch(api, store, pod, {"metadata": {"annotations": {labels.DELETION_COST: str(RELEASED_COST)}}})


async def _patch(api: KubeApi, store: Store, pod: EnginePod, body: Object) -> bool:
    try:
        store.upsert(POD, await api.patch(POD, pod.namespace, pod.name, body))
    except NotFound:
        return False
    return True
