"""Prices of a GPU hour where the user names none: on-demand list prices, good enough to rank, not to bill."""

from __future__ import annotations

from typing import Final

from equipoise.fleet.types import Device

_LLM_D: Final = "built-in list: gpu_catalog of llm-d-planner 0.3.3"
_SR_SIM: Final = "built-in list: vllm-sr-sim 0.1.0"
_ASSUMED: Final = "built-in list: assumed from devices of the same class"

_PRICES: Final[dict[str, tuple[float, str]]] = {
    "B200": (7.00, _ASSUMED),
    "H200": (5.75, _LLM_D),
    "H100": (4.50, _LLM_D),
    "H100-NVL": (4.00, _ASSUMED),
    "H100-PCIe": (3.50, _ASSUMED),
    "A100-80GB": (3.50, _LLM_D),
    "A100-PCIe-80GB": (3.00, _ASSUMED),
    "A100-40GB": (2.50, _ASSUMED),
    "A100-PCIe-40GB": (2.20, _ASSUMED),
    "RTX-PRO-6000": (2.50, _ASSUMED),
    "L40S": (1.80, _SR_SIM),
    "RTX-6000-Ada": (1.80, _ASSUMED),
    "RTX-A6000": (1.00, _ASSUMED),
    "RTX-4090": (0.80, _ASSUMED),
    "A10G": (1.30, _LLM_D),
    "A30": (1.20, _ASSUMED),
    "Arc-Pro-B60": (1.00, _SR_SIM),
    "L4": (0.80, _LLM_D),
    "T4": (0.50, _ASSUMED),
    "MI300X": (4.50, _ASSUMED),
}
_USD_PER_GB_HOUR: Final = 0.04  # unknown devices: between L40S (.038) and A100-80 (.044) of the list above


def default_price(device: Device) -> tuple[float, str]:
    """USD per GPU hour, and where the figure comes from. Set `pricePerGPUHour` on a GPUPool to replace it."""
    if device.name in _PRICES:
        return _PRICES[device.name]
    return round(device.memory_bytes / 1e9 * _USD_PER_GB_HOUR, 2), "assumed from memory size; set pricePerGPUHour on a GPUPool"
