"""The shape of an engine's metric table: which series give which reading. A new engine is one more file of such rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from equipoise.api.identity import Phase

BOTH = (Phase.PREFILL, Phase.DECODE)
PREFILL = (Phase.PREFILL,)
DECODE = (Phase.DECODE,)


class Kind(StrEnum):
    """How samples of one metric become one number per group."""

    INCREASE = "increase"  # of a counter over the window, summed over pods: amounts of work
    DIFFERENCE = "difference"  # of a counter between the window's ends, summed over pods: both parts of a mean
    MEAN = "mean"  # of a gauge over the window, summed over pods
    AVERAGE = "average"  # of a gauge over the window, averaged over pods
    PEAK = "peak"  # of a gauge over the window, the highest of all pods
    NOW = "now"  # of a gauge at the end of the window, summed over pods
    BEFORE = "before"  # of a gauge at the start of the window, summed over pods
    BUCKETS = "buckets"  # difference of a histogram's buckets between the window's ends, per `le`, summed over pods


class Reading(StrEnum):
    """What the rest of the room asks an engine for. Each is one query for the whole fleet."""

    PREFILLED = "requests_prefilled"
    FINISHED = "requests_finished"
    FAILED = "requests_failed"
    REFUSED = "requests_refused"
    PROMPT_TOKENS = "prompt_tokens"
    PROMPT_TOKENS_COMPUTED = "prompt_tokens_computed"
    PROMPT_TOKENS_CACHED = "prompt_tokens_cached"
    OUTPUT_TOKENS = "output_tokens"
    PROMPT_LENGTH_SUM = "prompt_length_sum"
    PROMPT_LENGTH_COUNT = "prompt_length_count"
    OUTPUT_LENGTH_SUM = "output_length_sum"
    OUTPUT_LENGTH_COUNT = "output_length_count"
    TTFT_SUM = "ttft_sum"
    TTFT_COUNT = "ttft_count"
    TTFT_BUCKETS = "ttft_buckets"
    REQUEST_TPOT_SUM = "request_tpot_sum"
    REQUEST_TPOT_COUNT = "request_tpot_count"
    REQUEST_TPOT_BUCKETS = "request_tpot_buckets"
    TOKEN_LATENCY_SUM = "token_latency_sum"  # noqa: S105 - a latency per token, no secret
    TOKEN_LATENCY_COUNT = "token_latency_count"  # noqa: S105 - a latency per token, no secret
    TOKEN_LATENCY_BUCKETS = "token_latency_buckets"  # noqa: S105 - a latency per token, no secret
    QUEUE_SUM = "queue_sum"
    QUEUE_COUNT = "queue_count"
    QUEUE_BUCKETS = "queue_buckets"
    COMPUTE_SUM = "compute_sum"
    COMPUTE_COUNT = "compute_count"
    COMPUTE_BUCKETS = "compute_buckets"
    RUNNING = "running"
    WAITING = "waiting"
    WAITING_FOR_CAPACITY = "waiting_for_capacity"
    KV_USAGE = "kv_usage"
    KV_USAGE_PEAK = "kv_usage_peak"
    RUNNING_NOW = "running_now"
    RUNNING_BEFORE = "running_before"
    WAITING_NOW = "waiting_now"
    WAITING_BEFORE = "waiting_before"
    ROUTER_ANSWERED = "router_answered"
    ROUTER_HELD_NOW = "router_held_now"
    ROUTER_HELD_BEFORE = "router_held_before"


@dataclass(frozen=True, slots=True)
class Metric:
    """One exact series name, never a prefix (`*_created` series stand beside every counter), with the label values to ask for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One reading: its metric, the names it had in older versions (newest first; a pod that has the newer is read by it),
    its phases.

    `warm_only` leaves out pods that are still warming up: for latencies, not for amounts of work. `split` are the labels by
    which the engine cuts the family inside one pod; the parts are added, whereas series that differ in any other label are
    copies of one another.
    """

    reading: Reading
    kind: Kind
    metrics: tuple[Metric, ...]
    phases: tuple[Phase, ...] = BOTH
    warm_only: bool = False
    split: tuple[str, ...] = ()


class TtftSource(StrEnum):
    """Where the whole TTFT of a request shows."""

    LEGS = "legs"  # prefill and decode one after the other: each pod times its own leg (vLLM)
    DECODE = "decode"  # both at once: the decode pod times the whole (SGLang)


@dataclass(frozen=True, slots=True)
class EngineTable:
    """All readings of one engine.

    `presence` is a gauge that every pod exposes from its start (newest name first): the roll call is taken by it.
    `rank_label` tells the data-parallel ranks inside one pod apart; they add up.
    """

    engine: str
    presence: tuple[Metric, ...]
    instruments: tuple[Instrument, ...]
    ttft: TtftSource
    rank_label: str

    def metric_name(self, reading: Reading) -> str:
        """The newest name behind a reading, empty when the engine has none."""
        return next((item.metrics[0].name for item in self.instruments if item.reading is reading), "")


def histogram(
    metric_names: tuple[str, ...],
    readings: tuple[Reading, Reading, Reading],
    phases: tuple[Phase, ...],
    labels: Mapping[str, str] | None = None,
    split: tuple[str, ...] = (),
) -> tuple[Instrument, ...]:
    """The three instruments (sum, count, buckets) of one latency histogram, warm pods only."""
    rows = []
    for reading, suffix, kind in zip(
        readings, ("_sum", "_count", "_bucket"), (Kind.DIFFERENCE, Kind.DIFFERENCE, Kind.BUCKETS), strict=True
    ):
        metrics = tuple(Metric(name + suffix, labels or {}) for name in metric_names)
        rows.append(Instrument(reading, kind, metrics, phases, warm_only=True, split=split))
    return tuple(rows)


def gauge(reading: Reading, kind: Kind, *names: str, phases: tuple[Phase, ...] = BOTH, **labels: str) -> Instrument:
    """One gauge, newest name first."""
    return Instrument(reading, kind, tuple(Metric(name, labels) for name in names), phases)


def part_of_mean(reading: Reading, name: str, phases: tuple[Phase, ...], *, warm_only: bool = False) -> Instrument:
    """The sum or the count of a histogram of which only the mean is wanted."""
    return Instrument(reading, Kind.DIFFERENCE, (Metric(name),), phases, warm_only)


def counter(
    reading: Reading, *names: str, phases: tuple[Phase, ...] = BOTH, split: tuple[str, ...] = (), **labels: str
) -> Instrument:
    """One counter's increase, newest name first."""
    return Instrument(reading, Kind.INCREASE, tuple(Metric(name, labels) for name in names), phases, split=split)
