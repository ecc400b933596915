"""Traffic as it was observed in production: each window of the recording becomes a part with its rate and its mean lengths.

Metrics hold no single requests, so what happened inside a window is drawn: Poisson arrivals, lognormal lengths around the
window's means. Prompt tokens are those that had to be computed: the prefix cache that served the others is not there in the
replay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from equipoise.api.identity import Phase
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal, Unknown
from equipoise.simulate.traffic.curves import constant
from equipoise.simulate.traffic.lengths import lognormal
from equipoise.simulate.traffic.parse import Traffic
from equipoise.simulate.traffic.plan import Part, Plan

LARGEST_GAP_SHARE = 0.5  # of the windows may be without a rate; what is replayed would else be mostly made up


@dataclass(frozen=True, slots=True)
class Recording:
    """Windows of one service, oldest first, each `window_seconds` long and ending where the next one begins."""

    windows: tuple[ServiceObservation, ...]
    window_seconds: float

    def replicas(self, phase: Phase) -> int:
        """Pods of the phase that answered when the recording begins; 0 when none did."""
        return next((count for window in self.windows if (count := window.phase(phase).pods_sampled)), 0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The traffic of a recording, and what was known of it. Shares are means over requests; None where never measured."""

    traffic: Traffic
    gaps: int  # windows in which something was not known, so that the last known figure stands
    requests_per_second: float
    prompt_tokens: float
    output_tokens: float
    prefix_hit_share: float
    ttft_attainment: float | None
    tpot_attainment: float | None


def recorded_traffic(recording: Recording) -> Recorded:
    """Turn a recording into traffic.

    An idle window stays idle. ValueError when more than half of the windows have no rate, or lengths were never seen, with the
    reason that the signals give.
    """
    if not recording.windows:
        raise ValueError("the recording holds no window: --since must reach back further than one --step")
    rates = [window.prefill.requests_per_second for window in recording.windows]
    unknown = [rate for rate in rates if isinstance(rate, Unknown)]
    if len(unknown) > LARGEST_GAP_SHARE * len(rates):
        raise ValueError(
            f"requests per second are unknown in {len(unknown)} of {len(rates)} windows ({unknown[0].reason.value}: "
            f"{unknown[0].message or 'no more is known'}); check that Prometheus scraped the service then, or record another time"
        )
    rate, prompt, output, hits = (_Held(first) for first in (0.0, *_first_lengths(recording.windows), 0.0))
    parts, gaps = [], 0
    sums = dict.fromkeys(("requests", "prompt", "output", "hits"), 0.0)
    for window in recording.windows:
        signals = (
            rate.take(window.prefill.requests_per_second, idle=0.0),
            prompt.take(window.prefill.mean_tokens),
            output.take(window.decode.mean_tokens),
            hits.take(window.prefill.prefix_hit_share),
        )
        gaps += not all(signals)
        requests = rate.value * recording.window_seconds
        computed = max(1.0, prompt.value * (1.0 - min(1.0, max(0.0, hits.value))))
        for name, amount in zip(sums, (1.0, prompt.value, output.value, hits.value), strict=True):
            sums[name] += requests * amount
        lengths = lognormal(computed, max(1.0, output.value))
        parts.append(Part("recorded", lengths, constant(rate.value, recording.window_seconds)))
    if sums["requests"] <= 0.0:
        raise ValueError("the service had no requests in the recorded time; there is nothing to replay")
    plan = Plan(tuple(parts))
    return Recorded(
        Traffic(((0.0, "recorded"),), plan.seconds, plan.arrivals, plan),
        gaps,
        sums["requests"] / (recording.window_seconds * len(recording.windows)),
        sums["prompt"] / sums["requests"],
        sums["output"] / sums["requests"],
        sums["hits"] / sums["requests"],
        _mean_share([(w.prefill.requests_per_second, w.ttft_attainment) for w in recording.windows]),
        _mean_share([(w.prefill.requests_per_second, w.decode.attainment) for w in recording.windows]),
    )


class _Held:
    """A figure that keeps its last known value."""

    def __init__(self, first: float) -> None:
        self.value = first

    def take(self, signal: Signal, idle: float | None = None) -> bool:
        """Whether the signal was known. Idle is known: `idle`, or the last value where nothing happened to be measured."""
        if isinstance(signal, Known) and math.isfinite(signal.value):
            self.value = max(0.0, signal.value)
        elif isinstance(signal, Idle) and idle is not None:
            self.value = idle
        return not isinstance(signal, Unknown)


def _first_lengths(windows: Sequence[ServiceObservation]) -> tuple[float, float]:
    found = []
    for name, phase in (("prompt", Phase.PREFILL), ("answer", Phase.DECODE)):
        signals = [window.phase(phase).mean_tokens for window in windows]
        known = next((signal.value for signal in signals if isinstance(signal, Known) and math.isfinite(signal.value)), None)
        if known is None:
            reason = next((f": {s.reason.value} {s.message}".rstrip() for s in signals if isinstance(s, Unknown)), "")
            raise ValueError(f"the mean {name} length was never known in {len(windows)} windows{reason}")
        found.append(known)
    return found[0], found[1]


def _mean_share(pairs: Sequence[tuple[Signal, Signal]]) -> float | None:
    known = [(rate.value, share.value) for rate, share in pairs if isinstance(rate, Known) and isinstance(share, Known)]
    total = sum(rate for rate, _ in known)
    return sum(rate * share for rate, share in known) / total if total > 0.0 else None
