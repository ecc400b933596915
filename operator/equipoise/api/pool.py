"""GPUPool: nodes with the same device, with a price. Optional: pools are also found from node labels alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from equipoise.api.base import ApiModel, ApiObject, LabelValue, rule, rules
from equipoise.api.conditions import Condition
from equipoise.api.identity import Precision
from equipoise.api.values import Figure, PositiveQuantity, Quantity, parse_quantity

Share = Annotated[int, Field(ge=1, le=100)]


class Toleration(ApiModel):
    """A toleration of the engines' pods, as in a pod."""

    model_config = rules(
        rule("!has(self.operator) || self.operator != 'Exists' || !has(self.value)",
             "a toleration with operator Exists takes no value: take value out, or set operator to Equal", field_path=".value"),
    )  # fmt: skip

    key: Annotated[str, Field(max_length=317)] | None = None
    """Key of the taint; absent with operator Exists tolerates every taint."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal (the default) or Exists."""
    value: LabelValue | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; absent tolerates every effect."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """How long a NoExecute taint is tolerated, in seconds; absent: for ever."""


class FlopsSpec(ApiModel):
    """Dense arithmetic throughput."""

    bf16: PositiveQuantity | None = None
    """Dense bf16 operations per second, as a quantity: `989T` is 989 TFLOPS."""
    fp8: PositiveQuantity | None = None
    """Dense fp8 operations per second, as a quantity; absent where the device has none."""
    int4: PositiveQuantity | None = None
    """Dense operations per second with int4 weights, as a quantity (weights are usually widened first: then the bf16 figure)."""


class EfficiencySpec(ApiModel):
    """Shares of the data-sheet figures that an engine reaches."""

    prefill_compute: Share | None = None
    """Share of the dense operations that prefill reaches, in per cent."""
    weight_read: Share | None = None
    """Share of the memory bandwidth that decode reaches while it reads weights, in per cent."""
    kv_read: Share | None = None
    """Share of the memory bandwidth that decode reaches while it reads KV, in per cent."""


class DeviceSpec(ApiModel):
    """Figures of the device. Those left out are taken from the device catalogue, by the nodes' labels or `name`."""

    name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Name of the device in the catalogue, or of your own for one that is not there."""
    memory: PositiveQuantity | None = None
    """Memory of one GPU in bytes, as a quantity such as `80Gi`."""
    memory_bandwidth: PositiveQuantity | None = None
    """Memory bandwidth of one GPU in bytes per second, as a quantity such as `3350G`."""
    flops: FlopsSpec = FlopsSpec()
    """Dense arithmetic throughput by precision."""
    link_bandwidth: PositiveQuantity | None = None
    """Bandwidth between GPUs of one node in bytes per second and GPU, as a quantity such as `450G` (NVLink) or `32G` (PCIe)."""
    max_tensor_parallel: Annotated[int, Field(ge=1, le=16)] | None = None
    """Largest tensor parallel size that makes sense on it, in GPUs."""
    efficiency: EfficiencySpec = EfficiencySpec()
    """What engines reach of these figures."""

    @property
    def memory_bytes(self) -> float | None:
        """`memory` in bytes."""
        return _number(self.memory, "memory")

    @property
    def memory_bytes_per_second(self) -> float | None:
        """`memoryBandwidth` in bytes per second."""
        return _number(self.memory_bandwidth, "memoryBandwidth")

    @property
    def link_bytes_per_second(self) -> float | None:
        """`linkBandwidth` in bytes per second."""
        return _number(self.link_bandwidth, "linkBandwidth")

    @property
    def flops_per_second(self) -> dict[Precision, float]:
        """The precisions that are given, with operations per second."""
        given = {
            Precision.BF16: _number(self.flops.bf16, "flops.bf16"),
            Precision.FP8: _number(self.flops.fp8, "flops.fp8"),
            Precision.INT4: _number(self.flops.int4, "flops.int4"),
        }
        return {precision: value for precision, value in given.items() if value is not None}


class GPUPoolSpec(ApiModel):
    """Which nodes, which device, at what price."""

    model_config = rules(
        rule("self.resourceName == oldSelf.resourceName",
             "resourceName cannot be changed: running pods ask for the old one; create a second GPUPool and delete this one",
             field_path=".resourceName"),
    )  # fmt: skip

    node_selector: Annotated[
        dict[str, LabelValue], Field(min_length=1, max_length=16, json_schema_extra={"x-kubernetes-map-type": "atomic"})
    ]
    """Labels that the pool's nodes carry, all of them, such as `nvidia.com/gpu.product: NVIDIA-L40S`. At least one."""
    resource_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")] = (
        "nvidia.com/gpu"
    )
    """Extended resource that counts the GPUs of a node."""
    price_per_gpu_hour: Quantity | None = Field(default=None, alias="pricePerGPUHour")
    """Price of one GPU, in USD per hour, such as `\"1.80\"`. When left out: the catalogue's price of the device, and the status
    says so."""
    device: DeviceSpec = DeviceSpec()
    """Figures of the device, to add one or to correct the catalogue."""
    network_domain: LabelValue = ""
    """Name of the network domain. KV is handed over within one domain only; pools that name none share one."""
    network_bandwidth: PositiveQuantity | None = None
    """Bandwidth of a node for KV transfer in bytes per second, as a quantity: `12.5G` is 100 Gbit/s, the value assumed when left
    out."""
    tolerations: Annotated[
        tuple[Toleration, ...], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """Taints of the nodes that the engines' pods tolerate, besides the taint named like the resource, which they always do."""
    paused: bool = False
    """Whether the pool takes no new replicas. Those there stay until a move or a rollout takes them away."""

    @property
    def price_usd_per_gpu_hour(self) -> float | None:
        """`pricePerGPUHour` as a number."""
        return _number(self.price_per_gpu_hour, "pricePerGPUHour")

    @property
    def network_bytes_per_second(self) -> float | None:
        """`networkBandwidth` in bytes per second."""
        return _number(self.network_bandwidth, "networkBandwidth")


class GPUPoolStatus(ApiModel):
    """What the pool holds now."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this status was written for."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = ()
    """Ready: whether nodes match and the device is known; if not, the message says what to change."""
    nodes: Annotated[int, Field(ge=0)] | None = None
    """Nodes that match, a count."""
    gpus: Annotated[int, Field(ge=0)] | None = None
    """GPUs of the nodes that can take pods, a count."""
    free: Annotated[int, Field(ge=0)] | None = None
    """GPUs that no pod holds, on nodes that can take pods, a count."""
    device: Annotated[str, Field(max_length=253)] | None = None
    """Name of the device as it was recognised."""
    price_per_gpu_hour: Figure | None = Field(default=None, alias="pricePerGPUHour")
    """The price reckoned with, in USD per hour and GPU."""
    price_source: Annotated[str, Field(max_length=253)] | None = None
    """Where that price comes from."""


class GPUPool(ApiObject):
    """Nodes with the same device (product and memory), with a price; all InferenceServices share it."""

    model_config = rules(
        rule("size(self.metadata.name) <= 63",
             "the name is used as a label value: shorten it to 63 characters or fewer"),
    )  # fmt: skip

    kind: Literal["GPUPool"] = "GPUPool"
    spec: GPUPoolSpec
    """Which nodes, which device, at what price."""
    status: GPUPoolStatus = GPUPoolStatus()
    """What the pool holds now; written by Equipoise."""


def _number(value: str | None, field: str) -> float | None:
    return None if value is None else parse_quantity(value, f"GPUPool spec.{field}")
