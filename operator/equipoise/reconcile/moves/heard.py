"""Whether a ReplicaSet knows the count of its Deployment: the condition for a pod to be handed over to it."""

from __future__ import annotations

from equipoise.reconcile.kube.kinds import DEPLOYMENT, REPLICA_SET
from equipoise.reconcile.kube.protocol import KubeApi, Object


async def has_room(api: KubeApi, namespace: str, deployment: str, template_hash: str, count: int) -> bool:
    """Whether the current ReplicaSet of a Deployment is known to have heard that it may have `count` pods.

    A count travels from the Deployment through its controller to the ReplicaSet, a pod's label straight to the ReplicaSet's
    controller. Where the label is quicker, the ReplicaSet finds one pod too many and deletes one that serves (seen on a loaded
    control plane, one flip in some hundred). Reads past every cache, in this order: a Deployment whose newest generation was
    observed has passed its count on, so the ReplicaSet read after it carries that count; and one whose own newest generation
    was observed has been worked on with it. Controllers never look back to an older state.
    """
    owner = await api.get(DEPLOYMENT, namespace, deployment)
    if owner is None or not _observed(owner) or _count(owner) < count:
        return False
    replica_set = await api.get(REPLICA_SET, namespace, f"{deployment}-{template_hash}")
    return replica_set is not None and _observed(replica_set) and _count(replica_set) >= count


def _observed(obj: Object) -> bool:
    seen = (obj.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= obj["metadata"].get("generation", 1))


def _count(obj: Object) -> int:
    return int((obj.get("spec") or {}).get("replicas", 1))
