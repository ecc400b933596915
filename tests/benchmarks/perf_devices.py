"""What one replica of Llama-3.1-8B does on each device: `python tests/benchmarks/perf_devices.py`.

Traffic of the Azure conversation trace (1,155 prompt and 211 output tokens), TTFT 500 ms and TPOT 50 ms at the 95th percentile,
100 Gbit/s. "peak" is the same replica without room for queueing; "of 4" one of four that share arrivals. Below, the arithmetic
of an earlier study of the same table (peaks without the corrections 1.10 and 1.08, contexts half grown), for comparison.
"""

from __future__ import annotations

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.catalogue import DEVICES
from equipoise.perf.capacity import replica_capacity
from equipoise.perf.models import model_facts
from equipoise.perf.types import Refusal, Targets, Workload

STUDY = {
    "H200": (47047, 14815), "H100": (45813, 11554), "A100-80GB": (15972, 5314), "L40S": (13178, 1867), "RTX-4090": (10783, 1271),
    "Arc-Pro-B60": (5337, 625), "RTX-A6000": (5638, 1643), "A10G": (2473, 563), "L4": (3095, 0),
}  # fmt: skip
TRAFFIC = Workload(1155, 211)
TARGETS = Targets(0.5, 0.05)


def main() -> None:
    """Print the table."""
    model = model_facts("hf://meta-llama/Llama-3.1-8B-Instruct")
    if isinstance(model, Refusal):
        raise SystemExit(model.message)
    print(f"{'device':15} {'phase':8} {'alone':>7} {'of 4':>7} {'peak':>7} {'study':>7}  batch  share  binds")
    for name, device in DEVICES.items():
        for index, phase in enumerate(Phase):
            alone, shared = (
                replica_capacity(
                    phase, model, device, Shape(), TRAFFIC, TARGETS, network_bytes_per_second=12.5e9, replicas_sharing_queue=group
                )
                for group in (1, 4)
            )
            study = f"{STUDY[name][index]:,}" if name in STUDY else "-"
            if isinstance(alone, Refusal) or isinstance(shared, Refusal):
                refusal = alone if isinstance(alone, Refusal) else shared
                print(f"{name:15} {phase:8} {'-':>7} {'-':>7} {'-':>7} {study:>7}  {getattr(refusal, 'message', '')}")
                continue
            peak = alone.tokens_per_second / alone.utilisation
            print(
                f"{name:15} {phase:8} {alone.tokens_per_second:7,.0f} {shared.tokens_per_second:7,.0f} {peak:7,.0f} {study:>7}"
                f"  {alone.max_batch:5} {alone.attainable_share:6.2f}  {alone.binds}"
            )


if __name__ == "__main__":
    main()
