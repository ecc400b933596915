"""The device catalogue: figures with their sources, and which device a node's labels mean."""

from __future__ import annotations

from typing import Final

from equipoise.fleet.catalogue import nvidia_datacenter, workstation
from equipoise.fleet.catalogue.workstation import GENERIC
from equipoise.fleet.types import Device

DEVICES: Final[dict[str, Device]] = {device.name: device for device in (*nvidia_datacenter.DEVICES, *workstation.DEVICES)}


def device(name: str) -> Device:
    """The catalogue's device of that name; KeyError lists the names there are."""
    try:
        return DEVICES[name]
    except KeyError:
        raise KeyError(f"device {name!r} is not in the catalogue; it has {', '.join(sorted(DEVICES))}") from None


__all__ = ["DEVICES", "GENERIC", "device"]
