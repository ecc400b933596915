"""Workstation and consumer devices, other vendors, and the generic device. Peak figures are dense."""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Precision
from equipoise.fleet.types import Device

MIB: Final = 2**20
_BF16, _FP8, _INT4 = Precision.BF16, Precision.FP8, Precision.INT4

DEVICES: Final[tuple[Device, ...]] = (
    Device(
        name="RTX-PRO-6000",
        memory_bytes=97887 * MIB,
        memory_bytes_per_second=1.792e12,
        flops_per_second={_BF16: 503.8e12, _FP8: 1007e12, _INT4: 503.8e12},
        link_bytes_per_second=64e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.67,
        weight_read_efficiency=0.75,
        kv_read_efficiency=0.78,
        source="NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet; efficiencies from the fitted table",
        fitted_name="rtx_pro_6000_server",
    ),
    Device(
        name="RTX-6000-Ada",
        memory_bytes=49140 * MIB,
        memory_bytes_per_second=960e9,
        flops_per_second={_BF16: 364.2e12, _FP8: 728.5e12, _INT4: 364.2e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.54,
        weight_read_efficiency=0.74,
        kv_read_efficiency=0.66,
        source="NVIDIA RTX 6000 Ada data sheet; efficiencies as L40S (same chip), not measured",
    ),
    Device(
        name="RTX-A6000",
        memory_bytes=49140 * MIB,
        memory_bytes_per_second=768e9,
        flops_per_second={_BF16: 154.8e12, _FP8: 154.8e12, _INT4: 154.8e12},
        link_bytes_per_second=56e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.53,
        weight_read_efficiency=0.69,
        kv_read_efficiency=0.66,
        source="NVIDIA RTX A6000 data sheet; LLMServingSim's layer profile, .58 and .75, less the engine's own time (1.10, 1.08)",
    ),
    Device(
        name="RTX-4090",
        memory_bytes=24564 * MIB,
        memory_bytes_per_second=1.008e12,
        flops_per_second={_BF16: 165.2e12, _FP8: 330.3e12, _INT4: 165.2e12},
        link_bytes_per_second=16e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.93,
        weight_read_efficiency=0.84,
        kv_read_efficiency=0.91,
        source="NVIDIA Ada white paper; "
        "efficiencies from the fitted table (LLMServingSim, vLLM 0.19); no peer-to-peer: half the PCIe rate",
        fitted_name="rtx4090",
    ),
    Device(
        name="Arc-Pro-B60",
        memory_bytes=24480 * MIB,
        memory_bytes_per_second=456e9,
        flops_per_second={_BF16: 98.3e12, _FP8: 98.3e12, _INT4: 98.3e12},
        link_bytes_per_second=28e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.77,
        weight_read_efficiency=0.85,
        kv_read_efficiency=0.98,
        source="Intel Arc Pro B60 data sheet; efficiencies from the fitted table; FP8 and INT4 weights are computed in 16 bits",
        fitted_name="b60",
    ),
    Device(
        name="MI300X",
        memory_bytes=196592 * MIB,
        memory_bytes_per_second=5.3e12,
        flops_per_second={_BF16: 1307e12, _FP8: 2614e12, _INT4: 1307e12},
        link_bytes_per_second=448e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.45,
        weight_read_efficiency=0.65,
        kv_read_efficiency=0.75,
        source="AMD Instinct MI300X data sheet; efficiencies assumed (.45/.65/.75), not measured",
    ),
)

# Slower than any 16 GB data-centre device since 2018, so that sizing errs towards more replicas until calibration has seen
# traffic.
GENERIC: Final = Device(
    name="generic",
    memory_bytes=15360 * MIB,
    memory_bytes_per_second=300e9,
    flops_per_second={_BF16: 60e12},
    link_bytes_per_second=16e9,
    max_tensor_parallel=1,
    prefill_compute_efficiency=0.35,
    weight_read_efficiency=0.60,
    kv_read_efficiency=0.50,
    source="assumed: no figures for this product are known; conservative",
)
