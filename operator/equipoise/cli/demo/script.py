"""What the demo plays: the fleet, the service, the traffic. Everything that one might want to change is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from equipoise.api.identity import Phase
from equipoise.simulate.traffic.parse import parse_traffic

NAMESPACE: Final = "demo"
SERVICE: Final = "chat"
TARGETS: Final = {Phase.PREFILL: 2.0, Phase.DECODE: 0.05}
STARTUP_SECONDS: Final = 20  # of an emulated engine that starts cold; a real 8B model takes one to a few minutes
INTERVAL_SECONDS: Final = 5
SCRAPE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class DemoPool:
    """Nodes with one device, as their labels say it."""

    name: str  # as Equipoise will name the pool
    product: str
    memory_mib: int
    gpus_per_node: int
    nodes: int

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.gpus_per_node * self.nodes


POOLS: Final = (
    DemoPool("a100-80gb", "NVIDIA-A100-SXM4-80GB", 81920, 2, 2),
    DemoPool("l40s-48gb", "NVIDIA-L40S", 46068, 2, 2),
    DemoPool("rtx-4090-24gb", "NVIDIA-GeForce-RTX-4090", 24564, 2, 2),
)

# Lengths of the public Azure traces of 2023 (Splitwise, ISCA'24), in the mean: chat 1155 prompt and 211 answer tokens,
# code 2048 and 28.
TRAFFIC: Final = "chat:45s@4~30,chat:45s@30,code:90s@30,chat:80s@30"


TRACE_SECONDS: Final = 270.0
TRACE_REQUESTS_PER_SECOND: Final = 24.0  # in the mean of each trace: what the fleet can just serve of either kind


def trace_traffic(files: Sequence[Path]) -> str:
    """Recorded traces one after the other and back to the first, their hours in minutes, thinned to what the fleet can serve.

    Arrivals keep the traces' own ups and downs, sped up; ValueError names a file that cannot be read.
    """
    parts = [f"trace:{path.resolve()}" for path in (*files, files[0] if len(files) > 1 else None) if path is not None]
    seconds = parse_traffic(",".join(parts)).seconds or TRACE_SECONDS
    scaled = ",".join(f"{part}@{TRACE_REQUESTS_PER_SECOND:g}" for part in parts)
    return f"{scaled};speed={max(1.0, seconds / TRACE_SECONDS):.4g}"


def turn_names(names: Sequence[str]) -> list[str]:
    """Names of the kinds of traffic, without what all of them share: of two traces' file names, the words that differ."""
    words = [name.split("_") for name in names]
    if len(set(names)) < 2 or len({len(item) for item in words}) > 1:
        return list(names)
    differ = [column for column in range(len(words[0])) if len({item[column] for item in words}) > 1]
    return ["_".join(item[column] for column in differ) for item in words]


def service_manifest() -> dict[str, Any]:
    """The InferenceService of the demo: its smallest form, with rebalancing as quick as the signals allow."""
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {
            "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
            "targets": {"ttft": f"{TARGETS[Phase.PREFILL]:g}s", "tpot": f"{TARGETS[Phase.DECODE] * 1000:g}ms"},
            "engine": {
                "podTemplate": {"metadata": {"annotations": {"equipoise.dev/emulated-startup-seconds": str(STARTUP_SECONDS)}}}
            },
        },
    }


REAL_AND_EMULATED: Final = (
    "Real:     kube-apiserver, scheduler, controllers, Prometheus, Helm, and the operator with the chart's own rights.",
    "Emulated: nodes and their GPUs (KWOK), and the engines: one process plays vLLM at every pod's address, with queues,",
    "          batches, KV limits and step times measured or fitted for these devices. No model runs.",
)
