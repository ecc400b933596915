"""Services, pools and variants for the rendering tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Device, NodeCapacity, Pool

PRODUCTS = {
    "h100-80gb": ("NVIDIA-H100-80GB-HBM3", 80, 12.0),
    "l40s-48gb": ("NVIDIA-L40S", 48, 1.8),
    "l4-24gb": ("NVIDIA-L4", 24, 0.7),
}
UID = "6f1c2a9e-0d53-4a9f-8d5e-1c7e0b0d4a11"

ServiceFactory = Callable[..., InferenceService]
PoolFactory = Callable[..., dict[str, Pool]]
VariantFactory = Callable[..., Variant]


def make_service(spec: str = "", name: str = "chat", namespace: str = "prod") -> InferenceService:
    """An InferenceService as a user writes it: YAML laid over the smallest useful form."""
    smallest: dict[str, Any] = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct", "architecture": {"parameters": "8.03G"}},
        "targets": {"ttft": "500ms", "tpot": "50ms"},
    }
    given = yaml.safe_load(spec) or {}
    return InferenceService.parse_strict(
        {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": namespace, "uid": UID, "labels": {"app.kubernetes.io/instance": "argo-app"}},
            "spec": {**smallest, **given},
        }
    )


def make_pool(name: str, tolerations: tuple[Mapping[str, str], ...] = ()) -> Pool:
    product, gigabytes, price = PRODUCTS[name]
    device = Device(
        name=product,
        memory_bytes=gigabytes * 2**30,
        memory_bytes_per_second=1e12,
        flops_per_second={Precision.BF16: 1e14},
        link_bytes_per_second=1e11,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.5,
        weight_read_efficiency=0.7,
        kv_read_efficiency=0.7,
        source="test",
    )
    return Pool(
        name=name,
        device=device,
        nodes=(NodeCapacity(f"{name}-0", 8),),
        price_usd_per_gpu_hour=price,
        node_selector={"nvidia.com/gpu.product": product},
        tolerations=tolerations,
    )


@pytest.fixture
def service() -> ServiceFactory:
    return make_service


@pytest.fixture
def pools() -> PoolFactory:
    def build(*names: str, tolerations: tuple[Mapping[str, str], ...] = ()) -> dict[str, Pool]:
        return {name: make_pool(name, tolerations) for name in names}

    return build


@pytest.fixture
def variant() -> VariantFactory:
    def build(
        phase: str, pool: str = "h100-80gb", shape: str = "tp1-bf16", name: str = "chat", namespace: str = "prod"
    ) -> Variant:
        return Variant(ServiceKey(namespace, name), Phase(phase), pool, Shape.parse(shape))

    return build


@pytest.fixture
def uid() -> str:
    return UID
