"""The small fleet format: pools in a few lines each, turned into the objects that a cluster would hold."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from equipoise.api.base import ApiModel, LabelValue, problems
from equipoise.api.identity import GROUP, VERSION
from equipoise.api.pool import DeviceSpec
from equipoise.api.values import PositiveQuantity, Quantity, parse_quantity
from equipoise.cli.plan.files import PlanError
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.catalogue.identify import recognise
from equipoise.fleet.naming import pool_name

POOL_LABEL: Final = "equipoise.dev/plan-pool"
_RESOURCE: Final = "nvidia.com/gpu"
_MIB: Final = 2**20


class PlannedPool(ApiModel):
    """Nodes of one kind."""

    product: Annotated[str, Field(min_length=1)]
    """Name of the device in the catalogue (`H100`), or the product as node labels say it (`NVIDIA-H100-80GB-HBM3`)."""
    nodes: Annotated[int, Field(ge=1, le=10_000)]
    """Nodes, a count."""
    gpus_per_node: Annotated[int, Field(ge=1, le=64, alias="gpusPerNode")]
    """GPUs of each node, a count."""
    name: Annotated[LabelValue, Field(min_length=1, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = None
    """Name of the pool. When left out: the one that the device would be given in a cluster."""
    memory: PositiveQuantity | None = None
    """Memory of one GPU, where the product comes in several sizes: `80Gi`."""
    price_per_gpu_hour: Quantity | None = Field(default=None, alias="pricePerGPUHour")
    """USD per GPU and hour. When left out: the built-in list's."""
    taken_gpus: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(alias="takenGPUs")] = ()
    """GPUs that others hold, node by node; nodes not counted are free."""
    network_bandwidth: PositiveQuantity | None = None
    """Bandwidth of a node for KV transfer, in bytes per second: `12.5G`."""
    network_domain: LabelValue = ""
    """Network domain, as in a GPUPool."""
    device: DeviceSpec = DeviceSpec()
    """Figures of a device that the catalogue does not have, or that you know better, as in a GPUPool."""


class PlannedFleet(ApiModel):
    """The file."""

    pools: Annotated[tuple[PlannedPool, ...], Field(min_length=1)]
    """The pools."""


def pool_objects(document: Mapping[str, Any], path: Path) -> tuple[list[Any], list[Any], list[Any]]:
    """Nodes, pods and GPUPools of that file, for `fleet.discover`: one way from nodes to pools, wherever they come from.

    PlanError names the pool and the field.
    """
    given = document["pools"]
    if not isinstance(given, list) or not given:
        raise PlanError(f"fleet {path}: pools: found {given!r}; write a list of pools, see docs/concepts/plan.md")
    try:
        fleet = PlannedFleet.parse_strict(document)
    except ValidationError as error:
        raise PlanError(f"fleet {path}: {_within(error)}; see docs/concepts/plan.md") from None
    nodes, pods, pools = [], [], []
    names: set[str] = set()
    for position, pool in enumerate(fleet.pools):
        where = f"fleet {path}: pools[{position}] ({pool.name or pool.product})"
        _check(pool, where)
        name = pool.name or pool_name(recognise(pool.product, _mebibytes(pool)).device)
        if name in names:
            raise PlanError(f"{where}: there is a pool {name} already; give it another name")
        names.add(name)
        pools.append(_gpu_pool(pool, name))
        for index in range(pool.nodes):
            nodes.append(_node(pool, name, index))
            taken = pool.taken_gpus[index] if index < len(pool.taken_gpus) else 0
            if taken:
                pods.append(_holder(f"{name}-{index}", taken))
    return nodes, pods, pools


def _within(error: ValidationError) -> str:
    """What is wrong inside the pools; that a list of wrong ones is empty then is no news."""
    said = problems(error).split("; ")
    return "; ".join([text for text in said if not text.startswith("pools:")] or said)


def _check(pool: PlannedPool, where: str) -> None:
    if len(pool.taken_gpus) > pool.nodes or any(taken > pool.gpus_per_node for taken in pool.taken_gpus):
        raise PlanError(
            f"{where}: takenGPUs {list(pool.taken_gpus)} does not fit {pool.nodes} nodes of {pool.gpus_per_node} GPUs; write one "
            "count per node, none above gpusPerNode"
        )
    found = recognise(pool.product, _mebibytes(pool))
    figures = pool.device.memory_bandwidth is not None and pool.device.flops.bf16 is not None
    if found.known and not found.problem:
        return
    if found.known:
        raise PlanError(f"{where}: product {pool.product!r} comes in several memory sizes; say which with memory, such as 80Gi")
    if figures and (pool.memory is not None or pool.device.memory is not None):
        return
    upper = pool.product.upper()
    near = difflib.get_close_matches(upper, [name.upper() for name in DEVICES], 3, 0.4)
    known = [name for name in DEVICES if name.upper() in near]
    size = f" with {pool.memory} of memory" if pool.memory else ""
    raise PlanError(
        f"{where}: product {pool.product!r}{size} is not in the device catalogue"
        + (f" (near it: {', '.join(known)})" if known else f" (it has {', '.join(sorted(DEVICES))})")
        + "; correct it, or give the device's memory, device.memoryBandwidth and device.flops.bf16"
    )


def _mebibytes(pool: PlannedPool) -> int | None:
    return None if pool.memory is None else int(parse_quantity(pool.memory) / _MIB)


def _gpu_pool(pool: PlannedPool, name: str) -> dict[str, Any]:
    device = pool.device.to_dict()
    if pool.memory is not None and "memory" not in device and not recognise(pool.product, _mebibytes(pool)).known:
        device["memory"] = pool.memory
    if not recognise(pool.product, _mebibytes(pool)).known:
        device.setdefault("name", pool.product)
    spec: dict[str, Any] = {"nodeSelector": {POOL_LABEL: name}, "resourceName": _RESOURCE, "device": device}
    given = {
        "pricePerGPUHour": pool.price_per_gpu_hour,
        "networkBandwidth": pool.network_bandwidth,
        "networkDomain": pool.network_domain or None,
    }
    spec |= {field: value for field, value in given.items() if value is not None}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}


def _node(pool: PlannedPool, name: str, index: int) -> dict[str, Any]:
    labels = {POOL_LABEL: name, "nvidia.com/gpu.product": pool.product}
    memory = _mebibytes(pool)
    if memory is not None:
        labels["nvidia.com/gpu.memory"] = str(memory)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"{name}-{index}", "labels": labels},
        "status": {
            "allocatable": {_RESOURCE: str(pool.gpus_per_node)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _holder(node: str, gpus: int) -> dict[str, Any]:
    """A pod of somebody else's that holds GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"holder-{node}", "namespace": "others"},
        "spec": {"nodeName": node, "containers": [{"name": "holder", "resources": {"limits": {_RESOURCE: str(gpus)}}}]},
        "status": {"phase": "Running"},
    }
