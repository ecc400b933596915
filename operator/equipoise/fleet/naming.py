"""Names of discovered pools: short, stable, readable, and different for different devices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Final

from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.types import Device

MAX_POOL_NAME_LENGTH: Final = 20  # names of Deployments hold service, phase, pool and shape in 63 characters
_HASH_LENGTH: Final = 6

_CATALOGUE_NAMES: Final[dict[str, str]] = {
    "A100-PCIe-40GB": "a100-pcie-40gb",
    "A100-PCIe-80GB": "a100-pcie-80gb",
    "A100-40GB": "a100-40gb",
    "A100-80GB": "a100-80gb",
    "A10G": "a10g-24gb",
    "A30": "a30-24gb",
    "Arc-Pro-B60": "arc-b60-24gb",
    "B200": "b200-180gb",
    "H100": "h100-80gb",
    "H100-NVL": "h100-nvl-94gb",
    "H100-PCIe": "h100-pcie-80gb",
    "H200": "h200-141gb",
    "L4": "l4-24gb",
    "L40S": "l40s-48gb",
    "MI300X": "mi300x-192gb",
    "RTX-4090": "rtx-4090-24gb",
    "RTX-6000-Ada": "rtx-6000-ada-48gb",
    "RTX-A6000": "rtx-a6000-48gb",
    "RTX-PRO-6000": "rtx-pro-6000-96gb",
    "T4": "t4-16gb",
}


def pool_name(device: Device) -> str:
    """A DNS label of at most 20 characters, a pure function of the device: `h100-80gb`.

    Devices outside the catalogue carry a hash of name and memory, for their names may differ only in what a label cannot hold.
    """
    if device.name in DEVICES and DEVICES[device.name] == device:
        return _CATALOGUE_NAMES[device.name]
    digest = hashlib.sha256(f"{device.name}\n{device.memory_bytes}".encode()).hexdigest()[:_HASH_LENGTH]
    words = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "gpu"
    room = MAX_POOL_NAME_LENGTH - _HASH_LENGTH - 1
    return f"{words[:room].strip('-')}-{digest}"


def unused_name(name: str, used: Collection[str]) -> str:
    """The name itself, or with a hash at its end when a GPUPool already has it: the nodes that this pool does not select."""
    if name not in used:
        return name
    digest = hashlib.sha256(f"beside GPUPool {name}".encode()).hexdigest()[:_HASH_LENGTH]
    return unused_name(f"{name[: MAX_POOL_NAME_LENGTH - _HASH_LENGTH - 1].strip('-')}-{digest}", used)
