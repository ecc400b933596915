"""What GPUPool objects add: which nodes belong together, prices, figures that replace the catalogue's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from equipoise.api.identity import Precision
from equipoise.api.pool import DeviceSpec, GPUPool
from equipoise.fleet.catalogue import DEVICES, GENERIC
from equipoise.fleet.types import Device


def read_gpu_pools(objects: Iterable[Mapping[str, Any]], problems: list[str]) -> list[GPUPool]:
    """GPUPools in order of their names; those being deleted are left out, unreadable ones are named in `problems`."""
    pools = []
    for data in objects:
        metadata = data.get("metadata")
        name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
        try:
            pool = GPUPool.parse(data)
            device_from_spec(pool.spec.device, None)
            float(pool.spec.price_usd_per_gpu_hour or 0.0)
        except ValidationError as error:
            first = error.errors()[0]
            problems.append(
                f"GPUPool {name}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}; the pool is ignored"
            )
        except ValueError as error:
            problems.append(f"GPUPool {name}: {error}; the pool is ignored")
        else:
            if not pool.metadata.deletion_timestamp:
                pools.append(pool)
    return sorted(pools, key=lambda pool: pool.metadata.name)


def device_from_spec(spec: DeviceSpec, recognised: Device | None) -> Device | None:
    """The device of a GPUPool: the named one of the catalogue, else the recognised one, else a generic one; then the user's own
    figures.

    None when neither labels nor spec say how much memory there is.
    """
    base = DEVICES.get(spec.name, recognised) if spec.name else recognised
    if base is None:
        if spec.memory_bytes is None:
            return None
        base = GENERIC
    changed: dict[str, Any] = {}
    if spec.name and spec.name not in DEVICES:
        changed["name"] = spec.name
    if spec.memory_bytes is not None:
        changed["memory_bytes"] = int(spec.memory_bytes)
    if spec.memory_bytes_per_second is not None:
        changed["memory_bytes_per_second"] = spec.memory_bytes_per_second
    if spec.flops_per_second:
        changed["flops_per_second"] = {**base.flops_per_second, **_with_bf16(spec.flops_per_second)}
    if spec.link_bytes_per_second is not None:
        changed["link_bytes_per_second"] = spec.link_bytes_per_second
    if spec.max_tensor_parallel is not None:
        changed["max_tensor_parallel"] = spec.max_tensor_parallel
    efficiency = spec.efficiency
    for field, share in (
        ("prefill_compute_efficiency", efficiency.prefill_compute),
        ("weight_read_efficiency", efficiency.weight_read),
        ("kv_read_efficiency", efficiency.kv_read),
    ):
        if share is not None:
            changed[field] = share / 100.0
    if not changed:
        return base
    # Figures of another device than the table measured: the user's own count, by roofline. Memory alone changes no step time.
    figures = set(changed) - {"memory_bytes", "name", "max_tensor_parallel"}
    return replace(
        base, **changed, fitted_name=None if figures else base.fitted_name, source=f"{base.source}; corrected by GPUPool"
    )


def _with_bf16(flops: Mapping[Precision, float]) -> dict[Precision, float]:
    """INT4 weights are widened to 16 bits to compute, so they run at the bf16 rate unless the user says otherwise."""
    result = dict(flops)
    if Precision.BF16 in flops:
        result.setdefault(Precision.INT4, flops[Precision.BF16])
    return result
