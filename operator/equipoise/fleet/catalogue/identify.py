"""From a product label and a memory label to a device.

Product and memory together make the device: "A100" alone says neither 40 nor 80 GB. Labels are those of NVIDIA GPU Feature
Discovery (`NVIDIA-H100-80GB-HBM3`, `Tesla-T4`), of AMD's node labeller (`AMD_Instinct_MI300X_OAM`), of Karpenter (`l40s`) and
of GKE (`nvidia-tesla-a100`); all are compared without vendor words, case and separators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.catalogue.workstation import GENERIC, MIB
from equipoise.fleet.types import Device

# Drivers reserve a few per cent (ECC, firmware) and vendors count in GB or GiB: a known product may report this much less or
# more.
MEMORY_TOLERANCE: Final = 0.10

# Product pattern, and the devices it may mean; memory decides between them. The first pattern that matches wins.
_PRODUCTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"B200", ("B200",)),
    (r"H200(?!.*NVL)", ("H200",)),
    (r"H100.*NVL", ("H100-NVL",)),
    (r"H100.*PCIE", ("H100-PCIe",)),
    (r"H100", ("H100",)),
    (r"A100.*PCIE", ("A100-PCIe-40GB", "A100-PCIe-80GB")),
    (r"A100", ("A100-40GB", "A100-80GB")),
    (r"L40S", ("L40S",)),
    (r"L4", ("L4",)),
    (r"A30", ("A30",)),
    (r"A10G", ("A10G",)),
    (r"T4", ("T4",)),
    (r"RTX-PRO-6000.*", ("RTX-PRO-6000",)),
    (r"RTX-6000-ADA.*", ("RTX-6000-Ada",)),
    (r"(RTX-)?A6000", ("RTX-A6000",)),
    (r"RTX-?4090", ("RTX-4090",)),
    (r"(ARC-)?(PRO-)?B60", ("Arc-Pro-B60",)),
    (r"MI300X", ("MI300X",)),
)
# What may stand beside the product's own name: form factor, memory size and kind, never another product's suffix (A100X, RTX
# 4090 D).
_SUFFIX: Final = r"(-(SXM[0-9]?|PCIE|NVL|MEGA|OAM|HBM[0-9]E?|[0-9]+GI?B|GRAPHICS|VF))*"
_ALIASES: Final[dict[str, str]] = {"NVIDIA-TESLA-A100": "A100-40GB"}  # GKE's name, which says no size and means 40 GB
_VENDOR_WORDS: Final = re.compile(r"^((NVIDIA|AMD|INTEL|TESLA|GEFORCE|INSTINCT|RADEON|CORPORATION|R)-)+")
_MIG: Final = re.compile(r"-MIG-[0-9]+[A-Z]\.[0-9]+GB", re.IGNORECASE)
_SIZE: Final = re.compile(r"(?<![0-9.])([0-9]+)GI?B\b")


@dataclass(frozen=True, slots=True)
class Identified:
    """A device, and what was not understood about it (empty when all was)."""

    device: Device
    problem: str = ""

    @property
    def known(self) -> bool:
        """Whether the catalogue has figures for it."""
        return self.device.name in DEVICES


def normalise_product(product_label: str) -> str:
    """The product in capitals, without vendor words and sharing suffix, separated by dashes: `RTX-4090`."""
    text = re.sub(r"\((R|TM|C)\)", "", product_label.strip().upper())
    text = re.sub(r"[\s_()/]+", "-", text).strip("-")
    text = text.removesuffix("-SHARED")
    if text in _ALIASES:
        return _ALIASES[text]
    return _VENDOR_WORDS.sub("", text)


@lru_cache(maxsize=1024)
def recognise(product_label: str, memory_mib: int | None) -> Identified:
    """The device that these labels mean; the generic device with the label's memory, and a problem, when the catalogue does not
    have it.

    `memory_mib` None: the node does not say; then the size in the product's name counts, or the only size the product comes in.
    """
    product = normalise_product(product_label)
    candidates = () if _MIG.search(product) else _candidates(product)
    named_gb = _named_size_gb(product)
    if memory_mib is None:
        fitting = [name for name in candidates if named_gb is None or _is_size(DEVICES[name], named_gb * 1000**3)]
        if len(fitting) == 1:
            return Identified(DEVICES[fitting[0]])
        if len(fitting) > 1:
            smallest = min((DEVICES[name] for name in fitting), key=lambda one: one.memory_bytes)
            return Identified(
                smallest,
                f"product {product_label!r} comes in several memory sizes and the node names none; taken as the smallest, "
                f"{smallest.name}; label the node with its memory (nvidia.com/gpu.memory, in MiB)",
            )
        memory_bytes = named_gb * 1000**3 if named_gb is not None else 0
    else:
        memory_bytes = memory_mib * MIB
        fitting = [name for name in candidates if _is_size(DEVICES[name], memory_bytes)]
        if len(fitting) == 1 and (named_gb is None or _is_size(DEVICES[fitting[0]], named_gb * 1000**3)):
            return Identified(DEVICES[fitting[0]])
    return Identified(_generic(product, memory_bytes), _unknown(product_label, memory_bytes, candidates))


def identify(product_label: str, memory_mib: int | None) -> Device:
    """The device that a product label and a memory label (MiB) mean together; `recognise` also says what was not understood."""
    return recognise(product_label, memory_mib).device


def _candidates(product: str) -> tuple[str, ...]:
    for pattern, names in _PRODUCTS:
        if re.fullmatch(pattern + _SUFFIX, product):
            return names
    return ()


def _named_size_gb(product: str) -> int | None:
    match = _SIZE.search(product)
    return int(match.group(1)) if match else None


def _is_size(one: Device, memory_bytes: float) -> bool:
    return abs(memory_bytes / one.memory_bytes - 1.0) <= MEMORY_TOLERANCE


def _generic(product: str, memory_bytes: int) -> Device:
    """Conservative figures under the product's own name: two unknown products are two devices."""
    whole_gib = memory_bytes // 1024**3 * 1024**3  # drivers of two nodes may differ by some MiB: still one pool
    return replace(GENERIC, name=product or GENERIC.name, memory_bytes=whole_gib or GENERIC.memory_bytes)


def _unknown(product_label: str, memory_bytes: int, candidates: tuple[str, ...]) -> str:
    memory = f"{memory_bytes / 1e9:.0f} GB" if memory_bytes else "no memory label"
    sizes = ", ".join(f"{DEVICES[name].name} ({DEVICES[name].memory_bytes / 1e9:.0f} GB)" for name in candidates)
    known = f"known with another memory size: {sizes}" if sizes else "not in the device catalogue"
    assumed = "" if memory_bytes else f", {GENERIC.memory_bytes / 1e9:.0f} GB assumed"
    return (
        f"product {product_label!r} ({memory}) is {known}; sized with conservative generic figures{assumed} "
        "until calibration has seen traffic"
    )
