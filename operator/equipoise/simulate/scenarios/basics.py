"""What the named worlds are built from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from equipoise.api.identity import Phase
from equipoise.api.service import InferenceService
from equipoise.simulate.loop.setup import PoolSetup, ServiceSetup
from equipoise.simulate.traffic.arrival import Arrival
from equipoise.simulate.traffic.curves import constant
from equipoise.simulate.traffic.lengths import lognormal
from equipoise.simulate.traffic.mix import read_mix
from equipoise.simulate.traffic.parse import Traffic, parse_traffic, plan_traffic
from equipoise.simulate.traffic.plan import Part, Plan
from equipoise.simulate.traffic.reshape import side_by_side

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"
LENGTH_VARIATION = 0.5  # standard deviation over mean of the alternating worlds' lengths: with 1.0 a tenth of 6,000-token prompts
# takes longer than the target by itself, and no control shows


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


def h100(gpus: int = 8) -> PoolSetup:
    """H100 with a 400 Gbit/s link for each GPU, as in an HGX node with eight of both."""
    return PoolSetup("h100", "H100", gpus, 1, network_bytes_per_second=50e9)


def a100(gpus: int = 8) -> PoolSetup:
    """A100 with a 200 Gbit/s link for each GPU, as in an HGX node with eight of both."""
    return PoolSetup("a100", "A100-80GB", gpus, 1, network_bytes_per_second=25e9)


def service(
    traffic: Traffic | str, initial: Mapping[tuple[Phase, str], int], given: InferenceService | None = None
) -> ServiceSetup:
    """One service with that traffic."""
    found = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    return ServiceSetup(given or resource(), found.arrivals, initial, found.turns)


def split(prefill: int, decode: int, pool: str = "h100") -> dict[tuple[Phase, str], int]:
    """So many replicas of each phase on one pool."""
    return {(Phase.PREFILL, pool): prefill, (Phase.DECODE, pool): decode}


def alternation(seconds: float, repeats: int, *kinds: tuple[int, int, float]) -> Traffic:
    """(prompt tokens, answer tokens, requests per second) in turn, `seconds` each."""
    parts = tuple(
        Part(f"{prompt}+{answer}", lognormal(prompt, answer, LENGTH_VARIATION), constant(rate, seconds))
        for prompt, answer, rate in kinds
    )
    return plan_traffic(Plan(parts, repeats))


def trace_or(data: Path | None, files: Sequence[str], options: str, otherwise: str) -> Traffic:
    """The recorded traces one after another where the folder has them, else generated traffic."""
    if data is not None and all((data / name).is_file() for name in files):
        return parse_traffic(",".join(f"trace:{data / name}" for name in files) + options)
    return parse_traffic(otherwise)


def mix_or(data: Path | None, file: str, seconds: float, speed: float, rate: float, otherwise: Traffic) -> Traffic:
    """The first `seconds` of a published curve, `speed` times as fast and `rate` times as dense, else other traffic."""
    if data is None or not (data / file).is_file():
        return otherwise
    parts, start = [], 0.0
    for part in read_mix(data / file):
        if start >= seconds:
            break
        parts.append(replace(part, variation=min(part.variation, 3.0)))
        start += part.seconds
    return plan_traffic(Plan(tuple(parts)).scaled(rate).compressed(speed))


def beside(*streams: Traffic) -> Traffic:
    """Several kinds of traffic at once, for one service."""

    def arrivals(seed: int) -> Iterator[Arrival]:
        return side_by_side(*(stream.arrivals(seed * 1009 + number) for number, stream in enumerate(streams)))

    lengths = [stream.seconds for stream in streams]
    seconds = None if any(length is None for length in lengths) else max(length or 0.0 for length in lengths)
    return Traffic((), seconds, arrivals)
