"""Online calibration: how fast each variant really is against the performance model, from windows of what is observed.

Decode:  ITL = A k + B over the KV tokens k that a replica holds. k is KV usage x KV capacity, plus one sequence: an answer meets
         the others as an onlooker would, with itself on top.
Prefill: TTFT = T / V + B over the uncached tokens T of a prompt. Engines time a prompt from its first step to its first token,
         and the step holds whoever came during the step before. A prompt that waited q on average came into a step of length
         2 q, so that 2 q x (arrivals per second) others share its own: own time = measured / (1 + 2 q x arrivals/s). Own
         derivation for Poisson arrivals; tests hold it against the simulated engine. Where prompts queue for more than half
         of that time, steps are full and the formula ends: such windows are left out.

The line is fitted in `perf.calibrate` (robust, within 0.5 and 2 of the table). Windows while a move settles or pods warm up are
left out. What is remembered for a variant lives in the service's status, and is forgotten when the engine (image, flags, model)
changes; another shape is another variant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from equipoise.api.identity import Phase, Variant
from equipoise.decide.memory import VariantMemory, variant_key
from equipoise.decide.types import Speed, VariantStatus
from equipoise.observe.types import VariantObservation
from equipoise.perf.calibrate import MINIMUM_SAMPLES, WARM_UP_SECONDS, Calibration, Sample, calibrate
from equipoise.perf.types import StepTimes, Workload

WINDOW_SECONDS: Final = 6 * 3600.0  # older samples say little of today's drivers, clocks and neighbours
KEPT_SAMPLES: Final = 12  # per variant, the latest: they are written to the API server
SPACING_SECONDS: Final = 60.0  # between samples, or a window where that is longer: overlapping windows would be one sample
LEAST_REQUESTS: Final = 20.0  # behind a sample: chance in their mean is then below a quarter
LEAST_RUNNING: Final = 2.0  # sequences of a decode replica: below, it is idle part of the time, and usage means little
LEAST_CHANGE: Final = 0.05  # of a speed, to be taken over: capacities must not follow noise
MOST_VARIANTS: Final = 16  # remembered per service, the latest


@dataclass(frozen=True, slots=True)
class Window:
    """One variant in one round: what is there, what was seen of it, and what the model expects; `settling`: no steady state."""

    status: VariantStatus
    seen: VariantObservation | None
    times: StepTimes
    kv_tokens: int
    settling: bool = False


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Speeds that differ from the table, and what the next round has to know."""

    speeds: Mapping[Variant, Speed]
    memory: Mapping[str, VariantMemory]


def calibrate_variants(
    windows: Sequence[Window],
    remembered: Mapping[str, VariantMemory],
    engine: str,
    workload: Workload,
    *,
    at_seconds: float,
    window_seconds: float,
    now_seconds: float,
) -> Calibrated:
    """Speeds of the variants of one service. `at_seconds` is when the window ended; `engine` names what runs in the pods."""
    memory = {
        name: entry
        for name, entry in remembered.items()
        if entry.engine == engine and any(now_seconds - at <= WINDOW_SECONDS for at, _, _ in entry.samples)
    }
    speeds: dict[Variant, Speed] = {}
    for window in windows:
        variant = window.status.variant
        name = variant_key(variant)
        found = remembered.get(name)
        before = found if found is not None and found.engine == engine else VariantMemory(engine)
        after, said = _one(window, before, workload, at_seconds, window_seconds, now_seconds)
        if after != VariantMemory(engine):
            memory[name] = after
        if after.speed != 1.0:
            speeds[variant] = Speed(after.speed, said)
    if len(memory) > MOST_VARIANTS:
        latest = sorted(memory, key=lambda name: (max((at for at, _, _ in memory[name].samples), default=0.0), name))
        memory = {name: memory[name] for name in sorted(latest[-MOST_VARIANTS:])}
    return Calibrated(speeds, memory)


def _one(
    window: Window, memory: VariantMemory, workload: Workload, at_seconds: float, window_seconds: float, now_seconds: float
) -> tuple[VariantMemory, str]:
    status = window.status
    if memory.ready != status.ready:
        memory = replace(memory, ready=status.ready, since_seconds=round(now_seconds))
    steady = not window.settling and now_seconds - memory.since_seconds >= WARM_UP_SECONDS + window_seconds
    last = max((at for at, _, _ in memory.samples), default=-math.inf)
    if steady and status.ready and at_seconds - last >= max(SPACING_SECONDS, window_seconds):
        sample = sample_of(window, workload)
        if sample is not None:
            load, seconds = sample
            entry = (float(round(at_seconds)), _figures(load), _figures(seconds))
            memory = replace(memory, samples=(*memory.samples, entry)[-KEPT_SAMPLES:])
    if len(memory.samples) < MINIMUM_SAMPLES:
        return memory, _kept(memory)
    found = _fit(status.variant.phase, memory, window.times, workload, now_seconds)
    if found.accepted and abs(found.factor - memory.speed) >= LEAST_CHANGE:
        return replace(memory, speed=round(found.factor, 2)), found.reason
    return memory, found.reason if found.accepted else _kept(memory)


def _kept(memory: VariantMemory) -> str:
    return f"as found before; {len(memory.samples)} windows in memory say no more"


def _fit(phase: Phase, memory: VariantMemory, times: StepTimes, workload: Workload, now_seconds: float) -> Calibration:
    samples = [Sample(at, load, seconds) for at, load, seconds in memory.samples]
    return calibrate(phase, samples, times, workload, now_seconds=now_seconds, window_seconds=WINDOW_SECONDS, queue_free=True)


def sample_of(window: Window, workload: Workload) -> tuple[float, float] | None:
    """(load in tokens, seconds) of one window, as the fit wants them; None when the window is not fit for it."""
    status, seen = window.status, window.seen
    if seen is None or status.starting or status.pending or status.draining:
        return None
    if seen.pods != status.ready or seen.latency_samples < LEAST_REQUESTS:
        return None
    return _prefill_sample(seen, workload) if status.variant.phase is Phase.PREFILL else _decode_sample(window, seen, workload)


def _prefill_sample(seen: VariantObservation, workload: Workload) -> tuple[float, float] | None:
    measured, waited, rate = seen.compute_mean_seconds, seen.queue_mean_seconds, seen.requests_per_second
    if not _positive(measured) or not _positive(rate) or waited is None or not 0.0 <= waited <= 0.5 * measured:
        return None
    tokens = seen.tokens_per_second / rate if _positive(seen.tokens_per_second) else workload.uncached_prompt_tokens
    return tokens, measured / (1.0 + 2.0 * waited * rate / max(1, seen.pods))


def _decode_sample(window: Window, seen: VariantObservation, workload: Workload) -> tuple[float, float] | None:
    measured, usage, running = seen.latency_mean_seconds, seen.kv_usage_share, seen.running_requests
    if not _positive(measured) or not _positive(usage) or not _positive(running) or running < LEAST_RUNNING or usage > 1.0:
        return None
    own = workload.mean_prompt_tokens + workload.mean_output_tokens
    return usage * window.kv_tokens + own, measured


def _positive(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value > 0.0


def _figures(value: float) -> float:
    """Four significant figures: it is written to the API server."""
    return float(f"{value:.4g}")
