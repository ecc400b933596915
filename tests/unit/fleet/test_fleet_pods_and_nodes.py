"""GPUs that pods hold, and nodes that can take pods."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.fleet.node_labels import Product, not_whole, product_of
from equipoise.fleet.requests import gpu_request, holds_resources
from equipoise.fleet.usability import tolerated, unusable_reason

GPU = "nvidia.com/gpu"


def container(gpus: int | str = 0, *, part: str = "limits", **more: Any) -> dict[str, Any]:
    return {"resources": {part: {GPU: gpus}} if gpus else {}, **more}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> dict[str, Any]:
    return {
        "spec": {"nodeName": "n", "containers": list(containers), "initContainers": list(init), **spec},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("one", "gpus"),
    [
        (pod(container(2)), 2),
        (pod(container("4", part="requests")), 4),
        (pod(container(1), container(2), container()), 3),
        (pod(container(1), init=(container(4),)), 4),  # an init container runs alone before the others
        (pod(container(3), init=(container(2), container(1))), 3),
        (pod(container(1), init=(container(2, restartPolicy="Always"),)), 3),  # a sidecar keeps its own
        (
            pod(container(1), init=(container(1, restartPolicy="Always"), container(4))),
            5,
        ),  # and is there for later init containers
        (pod(container(1), init=(container(4), container(1, restartPolicy="Always"))), 4),  # not for earlier ones
        (pod(container(1), overhead={GPU: "1"}), 2),
        (pod(container()), 0),
        (pod(container("many")), 0),
        ({"spec": {}}, 0),
        ({}, 0),
    ],
)
def test_gpus_that_the_scheduler_reserves(one: dict[str, Any], gpus: int) -> None:
    assert gpu_request(one, GPU) == gpus


def test_only_bound_pods_that_have_not_ended_hold_gpus() -> None:
    bound = pod(container(1))
    assert holds_resources(bound)
    assert holds_resources(bound | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})  # terminating: still holds it
    assert holds_resources(bound | {"status": {"phase": "Pending"}})  # bound, images are being pulled
    assert not holds_resources(bound | {"status": {"phase": "Succeeded"}})
    assert not holds_resources(bound | {"status": {"phase": "Failed"}})
    assert not holds_resources({"spec": {"containers": [container(1)]}, "status": {"phase": "Pending"}})
    assert not holds_resources({})


def node(*, ready: str | None = "True", taints: list[dict[str, str]] | None = None, **spec: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": "KubeletStoppedPosting"}]
    return {"metadata": {"name": "n"}, "spec": {"taints": taints or [], **spec}, "status": {"conditions": conditions}}


OWN = [{"key": GPU, "operator": "Exists"}]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (node(), ""),
        (node(ready=None), "has reported no Ready condition yet"),
        (node(ready="Unknown"), "not Ready (KubeletStoppedPosting)"),
        (node(ready="False"), "not Ready (KubeletStoppedPosting)"),
        (node(unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]), "cordoned"),
        (node() | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "being deleted"),
        (node(taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}]), ""),
        (node(taints=[{"key": "team", "value": "search", "effect": "PreferNoSchedule"}]), ""),
        (
            node(taints=[{"key": "team", "value": "search", "effect": "NoSchedule"}]),
            "tainted team=search:NoSchedule, which engines do not tolerate; add a toleration to its GPUPool",
        ),
        (
            node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoExecute"}]),
            "tainted ToBeDeletedByClusterAutoscaler:NoExecute, which engines do not tolerate; add a toleration to its GPUPool",
        ),
    ],
)
def test_why_a_node_takes_no_engine(one: dict[str, Any], reason: str) -> None:
    assert unusable_reason(one, OWN) == reason


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        ({"key": "team", "operator": "Equal", "value": "search", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "search"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Equal", "value": "ads"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "search"}, False),  # no key needs Exists
    ],
)
def test_tolerations_match_as_the_scheduler_matches_them(toleration: dict[str, str], matches: bool) -> None:
    assert tolerated({"key": "team", "value": "search", "effect": "NoSchedule"}, [toleration]) is matches


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        (
            {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"},
            Product("nvidia.com/gpu.product", "NVIDIA-L4", "nvidia.com/gpu.memory", "23034"),
        ),
        (
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"},
            Product("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram", "192G"),
        ),
        (
            {"cloud.google.com/gke-accelerator": "nvidia-l4", "nvidia.com/gpu.product": "NVIDIA-L4"},
            Product("nvidia.com/gpu.product", "NVIDIA-L4"),
        ),
        (
            {"karpenter.k8s.aws/instance-gpu-name": "l40s", "karpenter.k8s.aws/instance-gpu-memory": "45776"},
            Product("karpenter.k8s.aws/instance-gpu-name", "l40s", "karpenter.k8s.aws/instance-gpu-memory", "45776"),
        ),
        ({"kubernetes.io/arch": "amd64"}, None),
    ],
)
def test_labels_that_tell_the_device(labels: dict[str, str], product: Product | None) -> None:
    assert product_of(labels) == product


@pytest.mark.parametrize(
    ("text", "mib"),
    [("23034", 23034), ("192G", 196608), ("192Gi", 196608), ("192GB", 196608), ("", None), ("0", None), ("much", None)],
)
def test_memory_labels(text: str, mib: int | None) -> None:
    assert Product("p", "x", "m", text).memory_mib == mib


@pytest.mark.parametrize(
    ("labels", "part"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-L4"}, ""),
        ({"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}, ""),
        (
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"},
            "its GPUs are MIG slices (NVIDIA-A100-SXM4-80GB-MIG-3g.40gb)",
        ),
        (
            {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.sharing-strategy": "mps"},
            "shared (nvidia.com/gpu.sharing-strategy: mps)",
        ),
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.replicas": "4"}, "shared (nvidia.com/gpu.replicas: 4"),
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, "product NVIDIA-L4-SHARED"),
    ],
)
def test_parts_of_gpus_are_told_from_whole_ones(labels: dict[str, str], part: str) -> None:
    reason = not_whole(labels)
    assert part in reason
    assert bool(reason) == bool(part)
