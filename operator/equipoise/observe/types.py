"""Signals and observations: every value is known, idle or unknown, and unknown is never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from equipoise.api.identity import Phase, ServiceKey


class UnknownReason(StrEnum):
    """Why a signal has no value."""

    NO_SERIES = "NoSeries"  # the query matched nothing, and no pod is ready that should answer
    NO_SERIES_WHILE_READY = "NoSeriesWhilePodsReady"  # pods are ready, yet nothing matched: labels, names or scraping are wrong
    STALE = "Stale"
    QUERY_FAILED = "QueryFailed"
    TOO_FEW_SAMPLES = "TooFewSamples"
    NOT_A_NUMBER = "NotANumber"
    NOT_EXPOSED = "NotExposed"  # this engine has no such metric


@dataclass(frozen=True, slots=True)
class Known:
    """A measured value; `samples` is how many observations stand behind it in the window (None where that has no meaning)."""

    value: float
    samples: float | None = None
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Idle:
    """Measured, and nothing happened: the count in the window is zero."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not measured. What depends on it holds, and says why."""

    reason: UnknownReason
    message: str = ""


Signal = Known | Idle | Unknown

_UNSEEN = Unknown(UnknownReason.NO_SERIES, "not queried")


@dataclass(frozen=True, slots=True)
class PhaseObservation:
    """One phase of one service over the window, all pods of the phase together.

    `latency` is this phase's own: the prefill leg of TTFT, or TPOT. `latency_percentile_seconds` is at the service's target
    percentile; `attainment` is the share of requests inside the phase's target (for prefill: the TTFT target), interpolated
    linearly inside a histogram bucket.
    """

    requests_per_second: Signal = _UNSEEN  # offered: completed + growth of the queue + refused
    served_requests_per_second: Signal = _UNSEEN
    refused_requests_per_second: Signal = _UNSEEN
    tokens_per_second: Signal = _UNSEEN  # served: computed (uncached) prompt tokens, or output tokens
    mean_tokens: Signal = _UNSEEN  # prompt tokens, or output tokens, per request
    prefix_hit_share: Signal = _UNSEEN
    latency_mean_seconds: Signal = _UNSEEN
    latency_percentile_seconds: Signal = _UNSEEN
    attainment: Signal = _UNSEEN
    running_requests: Signal = _UNSEEN  # mean over the window, all pods
    waiting_requests: Signal = _UNSEEN
    waiting_for_capacity_requests: Signal = _UNSEEN
    kv_usage_share: Signal = _UNSEEN  # mean over pods and window
    kv_usage_share_peak: Signal = _UNSEEN
    per_variant_tokens_per_second: Mapping[str, float] = field(default_factory=dict)  # by Deployment name


@dataclass(frozen=True, slots=True)
class ServiceObservation:
    """Both phases of one service in one window ending at `at_seconds` (seconds since the epoch)."""

    service: ServiceKey
    at_seconds: float
    window_seconds: float
    prefill: PhaseObservation
    decode: PhaseObservation
    ttft_decode_leg_mean_seconds: Signal = _UNSEEN  # TTFT as a decode pod sees it: KV transfer, decode queue, first step
    ttft_decode_leg_percentile_seconds: Signal = _UNSEEN
    ttft_attainment: Signal = _UNSEEN  # share of requests whose whole TTFT (both legs) is inside the target, estimated

    def phase(self, phase: Phase) -> PhaseObservation:
        """The observation of that phase."""
        return self.prefill if phase is Phase.PREFILL else self.decode
