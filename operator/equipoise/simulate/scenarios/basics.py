"""What the named worlds are built from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equipoise.api.identity import Phase
from equipoise.api.service import InferenceService
from equipoise.simulate.loop.setup import PoolSetup, ServiceSetup
from equipoise.simulate.traffic.parse import Traffic, parse_traffic

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"


def resource(name: str = "chat", *, ttft: str = "1s", tpot: str = "50ms", model: str = LLAMA_8B, **spec: Any) -> InferenceService:
    """An InferenceService as its user would write it; further parts of the spec by their names."""
    return InferenceService.model_validate(
        {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": "prod"},
            "spec": {"model": {"uri": model}, "targets": {"ttft": ttft, "tpot": tpot}, **spec},
        }
    )


def h100(gpus: int = 8, nodes: int = 1, **more: Any) -> PoolSetup:
    """A pool of H100."""
    return PoolSetup("h100", "H100", nodes, gpus, **more)


def service(
    traffic: Traffic | str, initial: Mapping[tuple[Phase, str], int], given: InferenceService | None = None
) -> ServiceSetup:
    """One service with that traffic."""
    found = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    return ServiceSetup(given or resource(), found.arrivals, initial, found.turns)


def split(prefill: int, decode: int, pool: str = "h100") -> dict[tuple[Phase, str], int]:
    """So many replicas of each phase on one pool."""
    return {(Phase.PREFILL, pool): prefill, (Phase.DECODE, pool): decode}
