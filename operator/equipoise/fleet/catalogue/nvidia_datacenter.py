"""NVIDIA data-centre devices. Peak figures are dense and come from the vendor's data sheets; see `efficiency` for the rest."""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Precision
from equipoise.fleet.types import Device

MIB: Final = 2**20
_BF16, _FP8, _INT4 = Precision.BF16, Precision.FP8, Precision.INT4

# Memory is what the driver reports (nvidia-smi), not the name on the box: an "80 GB" H100 reports 81,559 MiB.
#
# Efficiencies "from the fitted table" are those at which perf/roofline.py meets the entries of perf/table.py for that device,
# after the corrections that aiconfigurator applies to its own tables (prefill x 1.10, decode x 1.08). FP8 on Ampere is
# weight-only: the Marlin kernels of vLLM and SGLang compute in 16 bits, so its rate is the 16-bit rate. The same holds for INT4
# weights everywhere.

DEVICES: Final[tuple[Device, ...]] = (
    Device(
        name="B200",
        memory_bytes=183359 * MIB,
        memory_bytes_per_second=8.0e12,
        flops_per_second={_BF16: 2.25e15, _FP8: 4.5e15, _INT4: 2.25e15},
        link_bytes_per_second=900e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.55,
        weight_read_efficiency=0.6,
        kv_read_efficiency=0.75,
        source="NVIDIA DGX B200 data sheet; efficiencies assumed below those of H200, not measured",
    ),
    Device(
        name="H200",
        memory_bytes=143771 * MIB,
        memory_bytes_per_second=4.8e12,
        flops_per_second={_BF16: 989e12, _FP8: 1979e12, _INT4: 989e12},
        link_bytes_per_second=450e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.69,
        weight_read_efficiency=0.69,
        kv_read_efficiency=0.82,
        source="NVIDIA H200 data sheet; efficiencies from the fitted table",
        fitted_name="h200_sxm",
    ),
    Device(
        name="H100",
        memory_bytes=81559 * MIB,
        memory_bytes_per_second=3.35e12,
        flops_per_second={_BF16: 989e12, _FP8: 1979e12, _INT4: 989e12},
        link_bytes_per_second=450e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.67,
        weight_read_efficiency=0.71,
        kv_read_efficiency=0.85,
        source="NVIDIA H100 data sheet (SXM5); efficiencies from the fitted table",
        fitted_name="h100_sxm",
    ),
    Device(
        name="H100-NVL",
        memory_bytes=95830 * MIB,
        memory_bytes_per_second=3.9e12,
        flops_per_second={_BF16: 835e12, _FP8: 1671e12, _INT4: 835e12},
        link_bytes_per_second=300e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.6,
        weight_read_efficiency=0.64,
        kv_read_efficiency=0.77,
        source="NVIDIA H100 NVL data sheet; efficiencies assumed a tenth below those of H100 SXM (400 W limit), not measured",
    ),
    Device(
        name="H100-PCIe",
        memory_bytes=81559 * MIB,
        memory_bytes_per_second=2.0e12,
        flops_per_second={_BF16: 756e12, _FP8: 1513e12, _INT4: 756e12},
        link_bytes_per_second=64e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.55,
        weight_read_efficiency=0.68,
        kv_read_efficiency=0.8,
        source="NVIDIA H100 PCIe data sheet; efficiencies assumed below those of H100 SXM (350 W limit), not measured",
    ),
    Device(
        name="A100-80GB",
        memory_bytes=81920 * MIB,
        memory_bytes_per_second=2.039e12,
        flops_per_second={_BF16: 312e12, _FP8: 312e12, _INT4: 312e12},
        link_bytes_per_second=300e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.73,
        weight_read_efficiency=0.61,
        kv_read_efficiency=0.7,
        source="NVIDIA A100 data sheet (SXM4 80 GB); efficiencies from the fitted table",
        fitted_name="a100_sxm",
    ),
    Device(
        name="A100-PCIe-80GB",
        memory_bytes=81920 * MIB,
        memory_bytes_per_second=1.935e12,
        flops_per_second={_BF16: 312e12, _FP8: 312e12, _INT4: 312e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.64,
        weight_read_efficiency=0.61,
        kv_read_efficiency=0.7,
        source="NVIDIA A100 data sheet (PCIe 80 GB, 300 W); "
        "efficiencies as A100 SXM with less compute for the power limit, not measured",
    ),
    Device(
        name="A100-40GB",
        memory_bytes=40960 * MIB,
        memory_bytes_per_second=1.555e12,
        flops_per_second={_BF16: 312e12, _FP8: 312e12, _INT4: 312e12},
        link_bytes_per_second=300e9,
        max_tensor_parallel=8,
        prefill_compute_efficiency=0.74,
        weight_read_efficiency=0.74,
        kv_read_efficiency=0.7,
        source="NVIDIA A100 data sheet (SXM4 40 GB); "
        "layer timings of Helix (ASPLOS'25): .69-.78 and .77-.79, less for the engine's own time",
    ),
    Device(
        name="A100-PCIe-40GB",
        memory_bytes=40960 * MIB,
        memory_bytes_per_second=1.555e12,
        flops_per_second={_BF16: 312e12, _FP8: 312e12, _INT4: 312e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.65,
        weight_read_efficiency=0.74,
        kv_read_efficiency=0.7,
        source="NVIDIA A100 data sheet (PCIe 40 GB, 250 W); "
        "efficiencies as A100-40GB with less compute for the power limit, not measured",
    ),
    Device(
        name="L40S",
        memory_bytes=46068 * MIB,
        memory_bytes_per_second=864e9,
        flops_per_second={_BF16: 362e12, _FP8: 733e12, _INT4: 362e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.54,
        weight_read_efficiency=0.74,
        kv_read_efficiency=0.66,
        source="NVIDIA L40S data sheet; "
        "efficiencies from the fitted table; beyond 2 GPUs all-reduce over PCIe takes over 90 % of a step",
        fitted_name="l40s",
    ),
    Device(
        name="A30",
        memory_bytes=24576 * MIB,
        memory_bytes_per_second=933e9,
        flops_per_second={_BF16: 165e12, _FP8: 165e12, _INT4: 165e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.60,
        weight_read_efficiency=0.65,
        kv_read_efficiency=0.70,
        source="NVIDIA A30 data sheet; efficiencies assumed below those of A100 (165 W limit), not measured",
    ),
    Device(
        name="A10G",
        memory_bytes=23028 * MIB,
        memory_bytes_per_second=600e9,
        flops_per_second={_BF16: 70e12, _FP8: 70e12, _INT4: 70e12},
        link_bytes_per_second=32e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.53,
        weight_read_efficiency=0.69,
        kv_read_efficiency=0.66,
        source="NVIDIA A10G product brief (memory), tensor rate 70 TFLOPS; "
        "efficiencies as RTX A6000 (same generation), not measured",
    ),
    Device(
        name="L4",
        memory_bytes=23034 * MIB,
        memory_bytes_per_second=300e9,
        flops_per_second={_BF16: 121e12, _FP8: 242e12, _INT4: 121e12},
        link_bytes_per_second=6e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.40,
        weight_read_efficiency=0.81,
        kv_read_efficiency=0.7,
        source="NVIDIA L4 data sheet; layer timings of Helix (ASPLOS'25): .37-.41 and .79-.83, taken as they are, "
        "and what two L4 without peer-to-peer reached for all-reduce, 4.5 GB/s",
    ),
    Device(
        name="T4",
        memory_bytes=15360 * MIB,
        memory_bytes_per_second=320e9,
        flops_per_second={_BF16: 65e12},
        link_bytes_per_second=6e9,
        max_tensor_parallel=2,
        prefill_compute_efficiency=0.4,
        weight_read_efficiency=0.72,
        kv_read_efficiency=0.6,
        source="NVIDIA T4 data sheet (16 bits means FP16 here: Turing has no BF16, engines fall back); "
        "layer timings of Helix (ASPLOS'25)",
    ),
)
