"""What there is of one service now: its Deployments, ReplicaSets and engine pods, owners checked by uid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from equipoise.api.identity import ServiceKey, Variant
from equipoise.reconcile.kube.kinds import DEPLOYMENT, POD, REPLICA_SET
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import EnginePod, engine_pod, variant_of_pod
from equipoise.reconcile.view.variants import live_counts, template_revisions, variant_of_deployment

_REVISION = "deployment.kubernetes.io/revision"  # written by the Deployment controller on both, highest is current


@dataclass(frozen=True, slots=True)
class World:
    """One service's part of the cluster."""

    deployments: tuple[Object, ...]
    pods: tuple[EnginePod, ...]
    live: dict[Variant, int]
    revisions: dict[Variant, str]
    template_hashes: dict[Variant, str]  # pod-template-hash of each variant's current ReplicaSet
    unreleased: dict[Variant, int]  # flipped pods that the ReplicaSet of their former variant has not let go yet
    raw_pods: tuple[Object, ...] = ()


def read_world(store: Store, key: ServiceKey, uid: str) -> World:
    """Read the store. Objects of a dead namesake (another owner uid) are left out."""
    deployments = [item for item in store.of_service(DEPLOYMENT, key) if _owner(item) == uid]
    replica_sets = [item for deployment in deployments for item in store.owned_by(REPLICA_SET, deployment["metadata"]["uid"])]
    known = {item["metadata"]["uid"] for item in replica_sets}
    # Between the change of its labels and its adoption a flipped pod has no controller: it is ours by its labels.
    raw = [item for item in store.of_service(POD, key) if (_owner(item) or next(iter(known), "")) in known]
    pods = [pod for pod in map(engine_pod, raw) if pod is not None]
    return World(
        deployments=tuple(deployments),
        pods=tuple(pods),
        live=live_counts(deployments),
        revisions=template_revisions(deployments),
        template_hashes=_template_hashes(deployments, replica_sets),
        unreleased=_unreleased(deployments, replica_sets, raw),
        raw_pods=tuple(raw),
    )


def _owner(obj: Object) -> str:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def _unreleased(deployments: Iterable[Object], replica_sets: Iterable[Object], pods: Iterable[Object]) -> dict[Variant, int]:
    variants = {item["metadata"]["uid"]: variant_of_deployment(item) for item in deployments}
    holders = {item["metadata"]["uid"]: variants.get(_owner(item)) for item in replica_sets}
    result: dict[Variant, int] = {}
    for pod in pods:
        holder = holders.get(_owner(pod))
        if holder is not None and holder != variant_of_pod(pod):
            result[holder] = result.get(holder, 0) + 1
    return result


def _template_hashes(deployments: Iterable[Object], replica_sets: Iterable[Object]) -> dict[Variant, str]:
    by_owner: dict[str, list[Object]] = {}
    for item in replica_sets:
        by_owner.setdefault(_owner(item), []).append(item)
    result = {}
    for deployment in deployments:
        variant = variant_of_deployment(deployment)
        current = (deployment["metadata"].get("annotations") or {}).get(_REVISION)
        observed = (deployment.get("status") or {}).get("observedGeneration", 0)
        for item in by_owner.get(deployment["metadata"]["uid"], ()):
            same = (item["metadata"].get("annotations") or {}).get(_REVISION) == current
            mark = (item["metadata"].get("labels") or {}).get("pod-template-hash")
            if variant is not None and current and same and mark and observed:
                result[variant] = mark
    return result
