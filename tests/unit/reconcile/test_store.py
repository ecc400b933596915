"""The store: what it keeps, what it refuses, what it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from equipoise.api import labels
from equipoise.api.identity import ServiceKey
from equipoise.reconcile.kube.kinds import DEPLOYMENT, INFERENCE_SERVICE, NODE, PHASE_SCALE, POD, REPLICA_SET, SERVICE, Kind
from equipoise.reconcile.kube.protocol import Listing, Object
from equipoise.reconcile.store import Change, Store

OURS = {labels.MANAGED_BY: labels.MANAGED_BY_VALUE}


def service(name: str, version: int, *, uid: str = "", **spec: Any) -> Object:
    metadata = {"namespace": "prod", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": INFERENCE_SERVICE.api_version, "kind": "InferenceService", "metadata": metadata, "spec": spec}


def pod(name: str, version: int, *, node: str = "", gpus: int = 0, phase: str = "Running", **label_values: str) -> Object:
    resources = {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "1"}} if gpus else {"requests": {"cpu": "1"}}
    spec: Object = {"containers": [{"name": "engine", "image": "vllm", "env": [{"name": "A"}], "resources": resources}]}
    if node:
        spec["nodeName"] = node
    metadata = {"namespace": "prod", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": label_values}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def names(objects: list[Object]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


@pytest.fixture
def changes() -> list[Change]:
    return []


@pytest.fixture
def store(changes: list[Change]) -> Store:
    result = Store()
    result.subscribe(changes.append)
    return result


def test_objects_come_change_and_go(store: Store, changes: list[Change]) -> None:
    assert store.upsert(INFERENCE_SERVICE, service("chat", 1, replicas=1))
    assert store.upsert(INFERENCE_SERVICE, service("chat", 2, replicas=2))
    assert store.remove(INFERENCE_SERVICE, service("chat", 3))
    assert [(c.old and c.old["spec"], c.new and c.new["spec"]) for c in changes] == [
        (None, {"replicas": 1}),
        ({"replicas": 1}, {"replicas": 2}),
        ({"replicas": 2}, None),
    ]
    assert store.services() == []


def test_an_older_version_never_overwrites_a_newer_one(store: Store, changes: list[Change]) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 10, replicas=2))
    assert not store.upsert(INFERENCE_SERVICE, service("chat", 9, replicas=1))
    found = store.service(ServiceKey("prod", "chat"))
    assert found is not None
    assert found["spec"] == {"replicas": 2}
    assert len(changes) == 1


def test_a_new_version_without_a_new_meaning_is_kept_and_told_to_nobody(store: Store, changes: list[Change]) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 1))
    assert not store.upsert(INFERENCE_SERVICE, service("chat", 2))
    found = store.service(ServiceKey("prod", "chat"))
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "2"
    assert len(changes) == 1


def test_the_dead_do_not_come_back_with_a_late_list_or_event(store: Store) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 1))
    late = Listing([service("chat", 1)], "5")
    store.remove(INFERENCE_SERVICE, service("chat", 6))
    assert store.replace(INFERENCE_SERVICE, late) == 0
    assert not store.upsert(INFERENCE_SERVICE, service("chat", 4))
    assert store.keys(INFERENCE_SERVICE) == set()


def test_the_deletion_of_a_predecessor_does_not_hit_its_successor(store: Store) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 1, uid="first"))
    store.upsert(INFERENCE_SERVICE, service("chat", 8, uid="second"))
    assert not store.remove(INFERENCE_SERVICE, service("chat", 7, uid="first"))
    found = store.service(ServiceKey("prod", "chat"))
    assert found is not None
    assert found["metadata"]["uid"] == "second"


def test_a_successor_of_the_same_name_is_a_change_even_if_it_looks_the_same(store: Store, changes: list[Change]) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 1, uid="first"))
    assert store.upsert(INFERENCE_SERVICE, service("chat", 8, uid="second"))
    assert len(changes) == 2


def test_a_list_ends_what_is_gone_but_not_what_is_newer_than_the_list(store: Store, changes: list[Change]) -> None:
    store.upsert(INFERENCE_SERVICE, service("gone", 1))
    store.upsert(INFERENCE_SERVICE, service("kept", 2))
    store.upsert(INFERENCE_SERVICE, service("new", 11))
    changes.clear()
    assert store.replace(INFERENCE_SERVICE, Listing([service("kept", 2), service("missed", 9)], "10")) == 2
    assert {key.name for key in store.services()} == {"kept", "missed", "new"}
    assert sorted((c.old or c.new or {})["metadata"]["name"] for c in changes) == ["gone", "missed"]


def test_a_list_of_one_namespace_leaves_the_others_alone(store: Store) -> None:
    other = service("other", 1)
    other["metadata"]["namespace"] = "test"
    store.upsert(INFERENCE_SERVICE, other)
    store.upsert(INFERENCE_SERVICE, service("chat", 1))
    store.replace(INFERENCE_SERVICE, Listing([], "10"), "prod")
    assert store.services() == [ServiceKey("test", "other")]


def test_listed_and_denied_keep_absent_and_unknown_apart(store: Store) -> None:
    assert not store.listed(NODE)
    store.replace(NODE, Listing([], "1"))
    assert store.listed(NODE)
    store.deny(NODE, "nodes is forbidden")
    assert (store.listed(NODE), store.denied(NODE)) == (False, "nodes is forbidden")
    store.replace(NODE, Listing([], "2"))
    assert (store.listed(NODE), store.denied(NODE)) == (True, None)


def test_denying_a_kind_drops_what_was_held_of_it(store: Store, changes: list[Change]) -> None:
    store.upsert(INFERENCE_SERVICE, service("chat", 1))
    assert store.deny(INFERENCE_SERVICE, "not served") == 1
    assert changes[-1].new is None


def test_a_pod_that_flips_moves_between_the_variants(store: Store) -> None:
    where = {labels.SERVICE: "chat", **OURS}
    store.upsert(POD, pod("p", 1, gpus=1, **where, **{labels.VARIANT: "chat-decode"}))
    store.upsert(POD, pod("p", 2, gpus=1, **where, **{labels.VARIANT: "chat-prefill"}))
    assert store.pods_of_variant("prod", "chat-decode") == []
    assert names(store.pods_of_variant("prod", "chat-prefill")) == ["p"]
    assert names(store.of_service(POD, ServiceKey("prod", "chat"))) == ["p"]


def test_pods_are_found_by_node_once_bound(store: Store) -> None:
    store.upsert(POD, pod("p", 1, gpus=1))
    assert names(store.pods_on_node("")) == ["p"]
    store.upsert(POD, pod("p", 2, gpus=1, node="h100-0"))
    assert store.pods_on_node("") == []
    assert names(store.pods_on_node("h100-0")) == ["p"]


def test_strangers_pods_count_only_while_they_hold_accelerators(store: Store, changes: list[Change]) -> None:
    assert not store.upsert(POD, pod("web", 1, node="n"))
    assert store.upsert(POD, pod("training", 2, gpus=4, node="n"))
    assert names(store.pods_on_node("n")) == ["training"]
    assert store.upsert(POD, pod("training", 3, gpus=4, node="n", phase="Succeeded"))
    assert store.pods_on_node("n") == []
    assert changes[-1].new is None


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}, True),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]}, True),
        ({"containers": [{}], "initContainers": [{"resources": {"requests": {"amd.com/gpu": "1"}}}]}, True),
        ({"containers": [{}], "resourceClaims": [{"name": "gpu"}]}, True),
        ({"containers": [{"resources": {"requests": {"cpu": "1", "hugepages-2Mi": "1", "memory": "1"}}}]}, False),
        ({"containers": [{"resources": {}}]}, False),
    ],
)
def test_what_counts_as_holding_accelerators(store: Store, spec: Object, kept: bool) -> None:
    obj = pod("p", 1)
    obj["spec"] = spec
    assert store.upsert(POD, obj) is kept


def test_pods_are_kept_slim_and_ours_a_little_less(store: Store) -> None:
    heavy = pod("p", 1, gpus=1, **OURS)
    heavy["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    heavy["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    heavy["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastProbeTime": None}]
    store.upsert(POD, heavy)
    kept = store.get(POD, "prod", "p")
    assert kept is not None
    assert "managedFields" not in kept["metadata"]
    assert kept["metadata"]["annotations"] == {"a": "b"}
    assert kept["spec"]["containers"] == [
        {"name": "engine", "image": "vllm", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    ]
    assert kept["status"]["conditions"] == [{"type": "Ready", "status": "True"}]


def test_a_nodes_heartbeat_is_no_change(store: Store, changes: list[Change]) -> None:
    def node(version: int, beat: str, images: int) -> Object:
        return {
            "metadata": {"name": "n", "uid": "u", "resourceVersion": str(version)},
            "status": {
                "allocatable": {"nvidia.com/gpu": "8"},
                "images": [{"names": ["x"]}] * images,
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}],
            },
        }

    assert store.upsert(NODE, node(1, "2027-01-01T00:00:00Z", 1))
    assert not store.upsert(NODE, node(2, "2027-01-01T00:05:00Z", 2))
    assert len(changes) == 1


@pytest.mark.parametrize("kind", [DEPLOYMENT, REPLICA_SET, POD])
def test_children_are_found_by_their_controllers_uid(store: Store, kind: Kind) -> None:
    child = pod("child", 1, gpus=1, **OURS)
    child["metadata"]["ownerReferences"] = [
        {"kind": "InferenceService", "name": "chat", "uid": "u1", "controller": True},
        {"kind": "Node", "name": "n", "uid": "u2"},
    ]
    store.upsert(kind, child)
    assert names(store.owned_by(kind, "u1")) == ["child"]
    assert store.owned_by(kind, "u2") == []


@pytest.mark.parametrize("kind", [DEPLOYMENT, PHASE_SCALE])
def test_children_without_labels_are_found_by_their_owners_name(store: Store, kind: Kind) -> None:
    child = pod("child", 1)
    child["metadata"]["ownerReferences"] = [{"kind": "InferenceService", "name": "chat", "uid": "u1", "controller": True}]
    store.upsert(kind, child)
    assert names(store.of_service(kind, ServiceKey("prod", "chat"))) == ["child"]


def test_unknown_kinds_and_names_are_empty_answers(store: Store) -> None:
    assert store.get(POD, "prod", "p") is None
    assert store.all(POD) == []
    assert store.count(POD) == 0
    assert store.pods_on_node("n") == []
    assert store.owned_by(DEPLOYMENT, "u") == []


def test_a_list_with_nothing_newer_costs_no_memory(store: Store) -> None:
    store.upsert(POD, pod("p", 1, gpus=1))
    held = store.get(POD, "prod", "p")
    assert store.slim(POD, pod("p", 1, gpus=1)) is held
    assert store.slim(POD, pod("p", 2, gpus=1)) is not held
    assert store.slim(POD, pod("web", 3)) is None
    assert not store.upsert(POD, pod("p", 1, gpus=1))
    assert store.get(POD, "prod", "p") is held


def test_objects_share_their_keys_and_short_strings(store: Store) -> None:
    for name in ("a", "b"):
        store.upsert(POD, json.loads(json.dumps(pod(name, 1, gpus=1, **OURS))))
    first, second = (store.get(POD, "prod", name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert all(one is two for one, two in zip(first["metadata"], second["metadata"], strict=True))
    assert first["metadata"]["labels"][labels.MANAGED_BY] is second["metadata"]["labels"][labels.MANAGED_BY]


def test_all_kinds_of_children_are_found_by_their_service(store: Store) -> None:
    child = pod("router", 1)
    child["metadata"]["labels"] = {**OURS, labels.SERVICE: "chat"}
    store.upsert(SERVICE, child)
    assert names(store.of_service(SERVICE, ServiceKey("prod", "chat"))) == ["router"]
    assert store.owned_by(NODE, "u") == []
