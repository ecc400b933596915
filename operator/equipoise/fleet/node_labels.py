"""What node labels say about GPUs: product, memory, and whether a GPU is whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from equipoise.api.values import parse_quantity
from equipoise.fleet.catalogue.identify import Identified, recognise

# Extended resources whose unit is one GPU, in the order in which a node is asked for them.
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915")

# Labels that name the product, most exact first: GPU Feature Discovery, AMD's node labeller, Intel's feature rules, Karpenter,
# EKS, GKE.
PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "cloud.google.com/gke-accelerator",
)
# Labels with the memory of one GPU: plain numbers are MiB, AMD's carry a unit that means binary sizes ("192G").
MEMORY_LABELS: Final = (
    "nvidia.com/gpu.memory",
    "amd.com/gpu.vram",
    "beta.amd.com/gpu.vram",
    "karpenter.k8s.aws/instance-gpu-memory",
    "eks.amazonaws.com/instance-gpu-memory",
)
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"


@dataclass(frozen=True, slots=True)
class Product:
    """The labels that tell a node's device, as they stand on the node."""

    product_label: str
    product: str
    memory_label: str = ""
    memory: str = ""

    @property
    def memory_mib(self) -> int | None:
        """Memory of one GPU in MiB; None when the node does not say or says nonsense."""
        return _mebibytes(self.memory)

    def recognise(self) -> Identified:
        """The device these labels mean."""
        return recognise(self.product, self.memory_mib)


def product_of(labels: Mapping[str, str]) -> Product | None:
    """The node's product and memory labels; None when no label names a product."""
    for key in PRODUCT_LABELS:
        product = labels.get(key)
        if product:
            memory_label = next((name for name in MEMORY_LABELS if labels.get(name)), "")
            return Product(key, product, memory_label, labels.get(memory_label, ""))
    return None


def not_whole(labels: Mapping[str, str]) -> str:
    """Why a GPU of this node is not a whole device of its own, as the end of a sentence; empty when it is.

    Step times and memory are those of whole devices: a share has neither its own bandwidth nor a fixed part of the memory.
    """
    product = labels.get("nvidia.com/gpu.product", "")
    if re.search(r"-MIG-", product, re.IGNORECASE):
        return (
            f"its GPUs are MIG slices ({product}), for which no step times are known; turn MIG off there "
            "(nvidia.com/mig.config: all-disabled)"
        )
    strategy = labels.get(SHARING_LABEL, "none")
    replicas = labels.get(REPLICAS_LABEL, "1")
    if strategy not in {"", "none"} or product.upper().endswith("-SHARED") or (replicas.isdigit() and int(replicas) > 1):
        how = (
            f"{SHARING_LABEL}: {strategy}" if strategy not in {"", "none"} else f"{REPLICAS_LABEL}: {replicas}, product {product}"
        )
        return f"its GPUs are shared ({how}), so other pods would slow an engine down unseen; turn sharing off there"
    return ""


def _mebibytes(text: str) -> int | None:
    if text.isdigit():
        return int(text) or None
    try:
        size = parse_quantity(text.replace("B", "").replace("G", "Gi").replace("Gii", "Gi"))
    except ValueError:
        return None
    return int(size / 2**20) or None
