"""Devices, nodes and pools as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from equipoise.api.identity import Precision, Variant

DEFAULT_NETWORK_BYTES_PER_SECOND: Final = 12.5e9  # 100 Gbit/s, the least that Mooncake (FAST'25) recommends per node


@dataclass(frozen=True, slots=True)
class Device:
    """Figures of one accelerator; every efficiency carries its source in the catalogue.

    Bytes are bytes, rates are per second, FLOPS are dense. Efficiencies are shares (0..1) of the data-sheet figure
    that a serving engine reaches: compute in prefill, weight reading and KV reading in decode.
    """

    name: str
    memory_bytes: int
    memory_bytes_per_second: float
    flops_per_second: Mapping[Precision, float] = field(hash=False)  # a precision without kernels on this device is left out
    link_bytes_per_second: float
    max_tensor_parallel: int
    prefill_compute_efficiency: float
    weight_read_efficiency: float
    kv_read_efficiency: float
    source: str
    fitted_name: str | None = None  # name of this device in the table of fitted step times, if it is there


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """GPUs of one node. `own_gpus` counts bound pods of Equipoise's variants, terminating ones too: they still hold the GPU."""

    name: str
    allocatable_gpus: int
    foreign_gpus: int = 0
    own_gpus: Mapping[Variant, int] = field(default_factory=dict)
    usable: bool = True  # Ready, not cordoned, no taint that the engines do not tolerate
    unusable_reason: str = ""

    @property
    def free_gpus(self) -> int:
        """What a new pod could take now; zero on a node that cannot take pods."""
        if not self.usable:
            return 0
        return max(0, self.allocatable_gpus - self.foreign_gpus - sum(self.own_gpus.values()))


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes with the same device (product and memory), with a price."""

    name: str
    device: Device
    nodes: tuple[NodeCapacity, ...]
    price_usd_per_gpu_hour: float
    resource_name: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    network_domain: str = ""
    network_bytes_per_second: float = DEFAULT_NETWORK_BYTES_PER_SECOND
    price_source: str = ""

    @property
    def usable_gpus(self) -> int:
        """GPUs on nodes that can take pods, less what others hold there."""
        return sum(max(0, node.allocatable_gpus - node.foreign_gpus) for node in self.nodes if node.usable)

    @property
    def free_gpus(self) -> int:
        """GPUs that nothing holds, on nodes that can take pods."""
        return sum(node.free_gpus for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All pools, and what could not be understood while reading them."""

    pools: tuple[Pool, ...]
    problems: tuple[str, ...] = ()

    def pool(self, name: str) -> Pool | None:
        """The pool of that name, if it exists."""
        return next((pool for pool in self.pools if pool.name == name), None)
