"""What belongs to a service: by owner uid, by label while a pod changes hands, and never to a namesake."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.api import labels
from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.reconcile.kube.kinds import DEPLOYMENT, POD, REPLICA_SET
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.workload.world import World, read_world
from equipoise.render.names import deployment_name

KEY = ServiceKey("prod", "chat")
PREFILL = Variant(KEY, Phase.PREFILL, "h100-80gb", Shape())
DECODE = PREFILL.with_phase(Phase.DECODE)
REVISION = "deployment.kubernetes.io/revision"


def _labels(variant: Variant) -> dict[str, str]:
    return {
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.SERVICE: variant.service.name,
        labels.COMPONENT: variant.phase.value,
        labels.POOL: variant.pool,
        labels.SHAPE: str(variant.shape),
        labels.VARIANT: deployment_name(variant),
        labels.ROLE: variant.phase.value,
        labels.REVISION: "r1",
    }


def _object(name: str, uid: str, owner: str, kind: str, **metadata: Any) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "chat", "uid": owner, "controller": True}
    owners = [reference] if owner else []
    head = {"namespace": "prod", "name": name, "uid": uid, "resourceVersion": "1", "ownerReferences": owners}
    return {"metadata": head | metadata}


class Cluster:
    """Adds objects to a store as the API server would show them."""

    def __init__(self) -> None:
        self.store = Store()

    def deployment(
        self, variant: Variant, owner: str = "u1", *, uid: str = "", replicas: int | None = 2, revision: str = "1", seen: int = 1
    ) -> None:
        name, found = deployment_name(variant), _labels(variant)
        obj = _object(
            name,
            uid or f"d-{name}",
            owner,
            "InferenceService",
            labels=found,
            annotations={REVISION: revision} if revision else {},
        )
        obj["spec"] = {"template": {"metadata": {"labels": found}}} | ({} if replicas is None else {"replicas": replicas})
        obj["status"] = {"observedGeneration": seen} if seen else {}
        self.store.upsert(DEPLOYMENT, obj)

    def replica_set(self, variant: Variant, mark: str, *, deployment: str = "", revision: str = "1") -> None:
        name = deployment_name(variant)
        found = _labels(variant) | {"pod-template-hash": mark}
        obj = _object(
            f"{name}-{mark}",
            f"rs-{mark}",
            deployment or f"d-{name}",
            "Deployment",
            labels=found,
            annotations={REVISION: revision},
        )
        self.store.upsert(REPLICA_SET, obj | {"spec": {"replicas": 1}})

    def pod(self, name: str, variant: Variant, owner: str, phase: str = "Running", version: str = "1") -> None:
        obj = _object(name, f"uid-{name}", owner, "ReplicaSet", labels=_labels(variant), resourceVersion=version)
        self.store.upsert(POD, obj | {"spec": {"nodeName": "node-1", "containers": []}, "status": {"phase": phase}})

    def world(self, uid: str = "u1") -> World:
        return read_world(self.store, KEY, uid)


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.deployment(PREFILL)
    found.replica_set(PREFILL, "aaa")
    found.pod("pod-1", PREFILL, "rs-aaa")
    return found


def test_a_service_has_its_deployments_counts_and_pods(cluster: Cluster) -> None:
    world = cluster.world()
    assert world.live == {PREFILL: 2}
    assert [pod.name for pod in world.pods] == ["pod-1"]
    assert set(world.parts) == {"r1"}
    assert world.parts["r1"].template_hashes == {PREFILL: "aaa"}
    assert world.parts["r1"].live == {PREFILL: 2}


def test_nothing_of_a_dead_namesake_counts(cluster: Cluster) -> None:
    assert cluster.world("u2") == World((), (), {}, {}, ())
    cluster.deployment(DECODE, owner="u2", uid="d-new")
    cluster.replica_set(DECODE, "bbb", deployment="d-new")
    cluster.pod("pod-2", DECODE, "rs-bbb")
    assert [pod.name for pod in cluster.world("u2").pods] == ["pod-2"]
    assert [pod.name for pod in cluster.world("u1").pods] == ["pod-1"]


def test_a_pod_between_two_controllers_is_not_lost(cluster: Cluster) -> None:
    """A flip changes the labels first; until the other ReplicaSet adopts the pod it has no controller at all."""
    cluster.pod("flipping", DECODE, owner="")
    assert [(pod.name, pod.variant.phase) for pod in cluster.world().pods if pod.name == "flipping"] == [
        ("flipping", Phase.DECODE)
    ]


def test_a_flipped_pod_counts_for_its_donor_until_the_donors_replica_set_lets_it_go(cluster: Cluster) -> None:
    cluster.deployment(DECODE, uid="d-decode")
    cluster.replica_set(DECODE, "bbb", deployment="d-decode")
    cluster.pod("flipped", DECODE, owner="rs-aaa")
    assert cluster.world().parts["r1"].unreleased == {PREFILL: 1}
    cluster.pod("flipped", DECODE, owner="rs-bbb", version="2")
    assert cluster.world().parts["r1"].unreleased == {}


def test_a_pod_that_somebody_else_controls_is_not_ours(cluster: Cluster) -> None:
    cluster.pod("stranger", PREFILL, owner="rs-of-somebody")
    assert [pod.name for pod in cluster.world().pods] == ["pod-1"]


def test_a_pod_that_has_ended_holds_nothing(cluster: Cluster) -> None:
    cluster.pod("failed", PREFILL, "rs-aaa", phase="Failed")
    world = cluster.world()
    assert [pod.name for pod in world.pods] == ["pod-1"]
    assert len(world.raw_pods) == 2


def test_the_replica_set_of_the_current_template_adopts(cluster: Cluster) -> None:
    cluster.replica_set(PREFILL, "old", revision="0")
    assert cluster.world().parts["r1"].template_hashes == {PREFILL: "aaa"}


@pytest.mark.parametrize(("revision", "seen"), [("", 1), ("2", 1), ("1", 0)])
def test_a_template_that_no_replica_set_stands_for_yet_adopts_nothing(revision: str, seen: int) -> None:
    cluster = Cluster()
    cluster.deployment(PREFILL, revision=revision, seen=seen)
    cluster.replica_set(PREFILL, "aaa")
    assert cluster.world().parts["r1"].template_hashes == {}


def test_an_absent_count_is_one_as_kubernetes_has_it() -> None:
    cluster = Cluster()
    cluster.deployment(PREFILL, replicas=None)
    cluster.deployment(DECODE, replicas=0)
    assert cluster.world().live == {PREFILL: 1, DECODE: 0}
