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
class VariantObservation:
    """One variant over the window, for calibrating its speed. Latencies come from warm pods only; None where not measured.

    `compute_mean_seconds` is the step time without the queue (prefill only; vLLM counts other prompts of the same batch in it).
    `running_requests` and `kv_usage_share` are means per pod.
    """

    pods: int = 0  # with fresh samples
    requests_per_second: float | None = None  # finished
    tokens_per_second: float | None = None
    mean_tokens: float | None = None  # prompt or output tokens per finished request
    latency_mean_seconds: float | None = None
    latency_samples: float = 0.0
    queue_mean_seconds: float | None = None
    compute_mean_seconds: float | None = None
    running_requests: float | None = None
    kv_usage_share: float | None = None


@dataclass(frozen=True, slots=True)
class PhaseObservation:
    """One phase of one service over the window, all pods of the phase together.

    `latency` is this phase's own: the prefill leg of TTFT, or TPOT. `latency_percentile_seconds` is at the service's target
    percentile; `attainment` is the share of requests inside the phase's target (for prefill: the TTFT target), interpolated
    linearly inside a histogram bucket. `latency_percentile_bucket_seconds` is how wide the bucket is that the percentile fell
    into, hence how coarse it is; `attainment_bounds` are the shares at the edges of the bucket that holds the target.

    Sums over pods (rates, running, waiting) are scaled up when some ready pods are not scraped; `pods_missing` names those.
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
    failed_requests_per_second: Signal = _UNSEEN  # ended in an engine error; they leave a (short) latency sample behind
    recomputed_tokens_per_second: Signal = _UNSEEN  # decode: prompt tokens computed there, so not handed over by prefill
    queue_mean_seconds: Signal = _UNSEEN  # wait before the first step; on decode it contains the KV transfer
    latency_percentile_bucket_seconds: Signal = _UNSEEN
    attainment_bounds: tuple[float, float] | None = None
    latency_source: str = ""  # the metric that `latency_*` and `attainment` come from
    per_variant: Mapping[str, VariantObservation] = field(default_factory=dict)  # by Deployment name
    pods_ready: int = 0
    pods_sampled: int = 0  # with fresh samples
    pods_missing: tuple[str, ...] = ()  # ready for long enough, yet without fresh samples


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
    ttft_attainment_bounds: tuple[float, float] | None = None  # whatever the dependence between the legs, it lies in here
    ttft_mean_seconds: Signal = _UNSEEN  # whole TTFT: the legs' means added
    ttft_percentile_seconds: Signal = _UNSEEN  # whole TTFT at the target percentile, estimated
    scrape_interval_seconds: float | None = None  # as learned from the data
    problems: tuple[str, ...] = ()  # sentences on what is wrong with this service's metrics, for its condition

    def phase(self, phase: Phase) -> PhaseObservation:
        """The observation of that phase."""
        return self.prefill if phase is Phase.PREFILL else self.decode
