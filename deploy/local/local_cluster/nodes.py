"""Manifests of emulated nodes: what a kubelet and NVIDIA's GPU Feature Discovery would write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# KWOK keeps the nodes with this label. It is a label and not KWOK's usual annotation because the API server selects by labels:
# KWOK then sees a node whose label changes as gone, and falls silent about it, which is how a node is lost.
KUBELET_LABEL = "equipoise.dev/kubelet"
EMULATED = "emulated"
SILENT = "silent"
ZONE_LABEL = "topology.kubernetes.io/zone"
GPU_RESOURCE = "nvidia.com/gpu"


def gpu_node(
    name: str,
    product: str,
    memory_mib: int,
    gpus: int,
    *,
    labels: Mapping[str, str] | None = None,
    cpu: str = "128",
    memory: str = "1Ti",
) -> dict[str, Any]:
    """Return a node with GPUs, labelled as GPU Feature Discovery does and tainted as is usual.

    Args:
        name: the node's name.
        product: such as `NVIDIA-H100-80GB-HBM3`.
        memory_mib: memory of one device in MiB.
        gpus: devices of the node.
        labels: more labels; they win over the usual ones.
        cpu: cores, as a quantity.
        memory: main memory, as a quantity.
    """
    node = _node(
        name,
        cpu,
        memory,
        labels,
        {
            f"{GPU_RESOURCE}.product": product,
            f"{GPU_RESOURCE}.memory": str(memory_mib),
            f"{GPU_RESOURCE}.count": str(gpus),
            f"{GPU_RESOURCE}.present": "true",
        },
    )
    node["spec"] = {"taints": [{"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"}]}
    for kind in ("capacity", "allocatable"):
        node["status"][kind][GPU_RESOURCE] = str(gpus)
    return node


def cpu_node(name: str, *, labels: Mapping[str, str] | None = None, cpu: str = "64", memory: str = "256Gi") -> dict[str, Any]:
    """Return a node without GPUs, for routers and whatever else needs none."""
    return _node(name, cpu, memory, labels, {})


def _node(name: str, cpu: str, memory: str, labels: Mapping[str, str] | None, more: Mapping[str, str]) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": memory, "pods": "250", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "type": "kwok",
                KUBELET_LABEL: EMULATED,
                ZONE_LABEL: "local-a",
                **more,
                **(labels or {}),
            },
        },
        "status": {"capacity": dict(resources), "allocatable": dict(resources)},
    }
