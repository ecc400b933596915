"""What there is of one service now: its Deployments, ReplicaSets and engine pods, owners checked by uid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from equipoise.api import labels
from equipoise.api.identity import ServiceKey, Variant
from equipoise.reconcile.kube.kinds import DEPLOYMENT, POD, REPLICA_SET
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import EnginePod, engine_pod, variant_of_pod
from equipoise.reconcile.view.variants import live_counts, variant_of_deployment
from equipoise.render.names import template_label

_REVISION = "deployment.kubernetes.io/revision"  # written by the Deployment controller on both, highest is current


@dataclass(frozen=True, slots=True)
class Part:
    """What there is of one revision of a service: a Deployment per variant, and pods. Moves never cross revisions."""

    live: dict[Variant, int] = field(default_factory=dict)
    names: dict[Variant, str] = field(default_factory=dict)  # of the Deployments
    template_hashes: dict[Variant, str] = field(default_factory=dict)  # pod-template-hash of each one's current ReplicaSet
    unreleased: dict[Variant, int] = field(default_factory=dict)  # flipped pods that the former variant's ReplicaSet still holds
    pods: list[EnginePod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class World:
    """One service's part of the cluster. `live` and `pods` are of all revisions together, `parts` of each."""

    deployments: tuple[Object, ...]
    pods: tuple[EnginePod, ...]
    live: dict[Variant, int]
    parts: dict[str, Part]
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
        parts=_parts(deployments, replica_sets, raw, pods),
        raw_pods=tuple(raw),
    )


def _parts(
    deployments: Iterable[Object], replica_sets: Iterable[Object], raw_pods: Iterable[Object], pods: Iterable[EnginePod]
) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    holders: dict[str, tuple[str, Variant]] = {}
    by_owner: dict[str, list[Object]] = {}
    for item in replica_sets:
        by_owner.setdefault(_owner(item), []).append(item)
    for deployment in deployments:
        variant = variant_of_deployment(deployment)
        if variant is None:
            continue
        revision = template_label(deployment, labels.REVISION)
        part = parts.setdefault(revision, Part())
        owned = by_owner.get(deployment["metadata"]["uid"], [])
        part.live.update(live_counts([deployment]))
        part.names[variant] = deployment["metadata"]["name"]
        mark = _template_hash(deployment, owned)
        if mark:
            part.template_hashes[variant] = mark
        for item in owned:
            holders[item["metadata"]["uid"]] = revision, variant
    for pod in raw_pods:
        holder = holders.get(_owner(pod))
        if holder is not None and holder[1] != variant_of_pod(pod):
            unreleased = parts[holder[0]].unreleased
            unreleased[holder[1]] = unreleased.get(holder[1], 0) + 1
    for engine in pods:
        parts.setdefault(engine.revision, Part()).pods.append(engine)
    return parts


def _owner(obj: Object) -> str:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return ""


def _template_hash(deployment: Object, replica_sets: Iterable[Object]) -> str:
    """The pod-template-hash of the ReplicaSet that stands for the Deployment's template now; empty while there is none."""
    current = (deployment["metadata"].get("annotations") or {}).get(_REVISION)
    if not current or not (deployment.get("status") or {}).get("observedGeneration", 0):
        return ""
    for item in replica_sets:
        mark = (item["metadata"].get("labels") or {}).get(labels.POD_TEMPLATE_HASH)
        if mark and (item["metadata"].get("annotations") or {}).get(_REVISION) == current:
            return str(mark)
    return ""
