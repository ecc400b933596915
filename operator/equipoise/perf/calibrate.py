"""Correct the table by what is measured, slowly and within bounds.

Prefill: TTFT = T / V + B over the prompt tokens T that a replica has to compute before the first token, its own prompt
included. Decode: ITL = A x k + B over the KV tokens k that a replica holds. Both are straight lines in quantities that engines
export, need no profile and work per variant (llm-d's "prefill" and "itl" estimators do the same by least squares). Here the
line is Theil and Sen's, the median of slopes between pairs: up to 29 % of outliers do not move it.

A factor above 1 means: faster than the table. It divides times and multiplies capacities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes, Workload

SMALLEST_FACTOR: Final = 0.5
LARGEST_FACTOR: Final = 2.0
MINIMUM_SAMPLES: Final = 8
MAXIMUM_SAMPLES: Final = 64  # the latest ones; pairs grow with the square
MINIMUM_SPREAD: Final = 1.5  # upper over lower decile of the load: over less, a slope is noise
WARM_UP_SECONDS: Final = 60.0  # after Ready: kernels are still tuned and graphs captured on first use
LEAST_INTERCEPT_SECONDS: Final = -0.001  # a line that crosses zero load below this is no cost of serving (llm-d)


@dataclass(frozen=True, slots=True)
class Sample:
    """One window of one variant.

    `load_tokens` is T for prefill (prompt tokens a replica computes up to a first token: those queued before it and its own), k
    for decode (KV tokens a replica holds). `seconds` is TTFT's prefill leg or ITL. All are means over the window.
    """

    at_seconds: float
    load_tokens: float
    seconds: float
    ready_seconds: float = math.inf  # how long the youngest pod behind it had been Ready


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the samples say. `factor` is 1.0 when they say nothing; `reason` says why, or with which numbers."""

    factor: float
    reason: str
    accepted: bool
    samples: int
    seconds_per_token: float | None = None
    intercept_seconds: float | None = None


def calibrate(
    phase: Phase,
    samples: Sequence[Sample],
    expected: StepTimes,
    workload: Workload,
    *,
    now_seconds: float,
    window_seconds: float = 3600.0,
    queue_free: bool = False,
) -> Calibration:
    """Factor between the expected and the measured speed of one variant, within 0.5 and 2.

    Prefill compares slopes: what one more token costs. Decode compares step times at the largest load seen, where the batch is
    as the table was fitted. Samples outside the window, of pods that warm up, or without sense (negative, not finite) are left
    out; too few, too little spread, a slope of zero or less, or an impossible intercept leave the table as it is.

    `queue_free` says that `seconds` hold no waiting (prefill time proper, any ITL) and `load_tokens` is one request's own. Then
    steady traffic can be used too: when the load hardly varied, the median of expected over measured time is the factor.
    """
    kept = _usable(samples, now_seconds, window_seconds)
    if len(kept) < MINIMUM_SAMPLES:
        return _unchanged(f"{len(kept)} usable samples in the window, {MINIMUM_SAMPLES} needed", kept)
    loads = sorted(sample.load_tokens for sample in kept)
    lower, upper = loads[len(loads) // 10], loads[-1 - len(loads) // 10]
    if upper < MINIMUM_SPREAD * lower:
        if queue_free:
            return _by_ratio(phase, kept, expected, workload)
        return _unchanged(f"load hardly varied ({lower:,.0f} to {upper:,.0f} tokens), so no slope can be told", kept)
    slope, intercept = _line(kept)
    if slope <= 0:
        return _unchanged(
            f"slope {slope * 1e6:.3g} us per token: latency did not rise with load, so something else sets it", kept
        )
    if intercept < LEAST_INTERCEPT_SECONDS - 0.1 * slope * upper:
        return _unchanged(f"intercept {intercept * 1e3:.1f} ms is far below zero: not a straight line", kept)
    if phase is Phase.PREFILL:
        table, measured = expected_prefill_slope(expected, workload, constant=not queue_free), slope
        numbers = f"{1 / measured:,.0f} prompt tokens/s measured, {1 / table:,.0f} expected"
    else:
        table, measured = expected_step_seconds(expected, workload, upper), intercept + slope * upper
        numbers = f"step of {measured * 1e3:.1f} ms at {upper:,.0f} KV tokens measured, {table * 1e3:.1f} ms expected"
    factor, bound = _bounded(table / measured)
    return Calibration(factor, f"{numbers} over {len(kept)} samples{bound}", True, len(kept), slope, intercept)


def _by_ratio(phase: Phase, samples: Sequence[Sample], expected: StepTimes, workload: Workload) -> Calibration:
    def table(sample: Sample) -> float:
        if phase is Phase.DECODE:
            return expected_step_seconds(expected, workload, sample.load_tokens)
        return expected_prefill_slope(expected, workload) * sample.load_tokens

    factor, bound = _bounded(median(table(sample) / sample.seconds for sample in samples))
    seconds, load = median(sample.seconds for sample in samples), median(sample.load_tokens for sample in samples)
    numbers = f"{seconds * 1e3:.1f} ms measured at {load:,.0f} tokens, steady, over {len(samples)} samples"
    return Calibration(factor, f"{numbers}{bound}", True, len(samples))


def _bounded(raw: float) -> tuple[float, str]:
    factor = min(LARGEST_FACTOR, max(SMALLEST_FACTOR, raw))
    if factor == raw:
        return factor, ""
    return factor, f"; {raw:.2f} is outside {SMALLEST_FACTOR} to {LARGEST_FACTOR}: check model, device and metrics"


def expected_prefill_slope(times: StepTimes, workload: Workload, *, constant: bool = True) -> float:
    """Seconds that one more prompt token of this workload costs, the quadratic part shared out.

    With `constant`, the constant part of a step too: that is how queued prompts add up. One prompt's own time grows without it.
    """
    mean = max(1.0, workload.uncached_prompt_tokens)
    missed = mean / max(1.0, workload.mean_prompt_tokens)
    squared = workload.prompt_tokens_second_moment or 2.0 * workload.mean_prompt_tokens**2
    seconds = times.prefill_seconds(mean, squared * (1.0 - (1.0 - missed) ** 2))
    return (seconds if constant else seconds - times.prefill_constant) / mean


def expected_step_seconds(times: StepTimes, workload: Workload, kv_tokens: float) -> float:
    """One decode step of a replica that holds so many KV tokens of this workload's sequences."""
    context = max(1.0, workload.mean_prompt_tokens + workload.mean_output_tokens)
    return times.decode_step_seconds(kv_tokens / context, kv_tokens)


def calibrated_times(times: StepTimes, phase: Phase, factor: float) -> StepTimes:
    """Step times of one phase divided by the factor; the other phase stays."""
    if factor == 1.0:
        return times
    source = f"{times.source}; {phase.value} calibrated x {factor:.2f}"
    if phase is Phase.PREFILL:
        return replace(
            times,
            prefill_constant=times.prefill_constant / factor,
            prefill_per_token=times.prefill_per_token / factor,
            prefill_per_token_squared=times.prefill_per_token_squared / factor,
            source=source,
        )
    return replace(
        times,
        decode_constant=times.decode_constant / factor,
        decode_per_sequence=times.decode_per_sequence / factor,
        decode_per_context_token=times.decode_per_context_token / factor,
        source=source,
    )


def _usable(samples: Sequence[Sample], now_seconds: float, window_seconds: float) -> list[Sample]:
    kept = [
        sample
        for sample in samples
        if now_seconds - window_seconds <= sample.at_seconds <= now_seconds
        and sample.ready_seconds >= WARM_UP_SECONDS
        and math.isfinite(sample.load_tokens)
        and math.isfinite(sample.seconds)
        and sample.load_tokens > 0
        and sample.seconds > 0
    ]
    return sorted(kept, key=lambda sample: sample.at_seconds)[-MAXIMUM_SAMPLES:]


def _line(samples: Sequence[Sample]) -> tuple[float, float]:
    """Slope and intercept after Theil and Sen."""
    slopes = [
        (second.seconds - first.seconds) / (second.load_tokens - first.load_tokens)
        for index, first in enumerate(samples)
        for second in samples[index + 1 :]
        if second.load_tokens != first.load_tokens
    ]
    slope = median(slopes)
    return slope, median(sample.seconds - slope * sample.load_tokens for sample in samples)


def _unchanged(why: str, samples: Sequence[Sample]) -> Calibration:
    return Calibration(1.0, f"table kept: {why}", False, len(samples))
