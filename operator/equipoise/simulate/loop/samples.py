"""One scrape of one pod, as numbers in a fixed order, and the arithmetic over a window of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from equipoise.observe.engines.table import Reading
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.replica import Replica

COUNTERS: Final = (
    Reading.PREFILLED,
    Reading.FINISHED,
    Reading.FAILED,
    Reading.REFUSED,
    Reading.PROMPT_TOKENS,
    Reading.PROMPT_TOKENS_COMPUTED,
    Reading.PROMPT_TOKENS_CACHED,
    Reading.OUTPUT_TOKENS,
    Reading.PROMPT_LENGTH_SUM,
    Reading.PROMPT_LENGTH_COUNT,
    Reading.OUTPUT_LENGTH_SUM,
    Reading.OUTPUT_LENGTH_COUNT,
    Reading.TTFT_SUM,
    Reading.TTFT_COUNT,
    Reading.REQUEST_TPOT_SUM,
    Reading.REQUEST_TPOT_COUNT,
    Reading.TOKEN_LATENCY_SUM,
    Reading.TOKEN_LATENCY_COUNT,
    Reading.QUEUE_SUM,
    Reading.QUEUE_COUNT,
    Reading.COMPUTE_SUM,
    Reading.COMPUTE_COUNT,
)
COUNTER_INDEX: Final = {reading: index for index, reading in enumerate(COUNTERS)}
HISTOGRAMS: Final = (Reading.TTFT_BUCKETS, Reading.REQUEST_TPOT_BUCKETS, Reading.TOKEN_LATENCY_BUCKETS)
HISTOGRAM_INDEX: Final = {reading: index for index, reading in enumerate(HISTOGRAMS)}


class Sample(NamedTuple):
    """What one scrape saw. Buckets are not cumulative; the last one is +Inf's."""

    at_seconds: float
    counters: tuple[float, ...]
    buckets: tuple[tuple[int, ...], ...]
    running: int
    waiting: int
    waiting_for_capacity: int
    kv_usage: float


def take_sample(replica: Replica, metrics: ReplicaMetrics, now: float, wall_seconds: float) -> Sample:
    """Scrape one replica at `now` in its own time, `wall_seconds` since the epoch."""
    replica.sync(now)
    metrics.collect(now)
    by_source = metrics.prompt_tokens_by_source
    ttft, tpot, gap = metrics.time_to_first_token, metrics.request_time_per_output_token, metrics.inter_token_latency
    prompt, answer = metrics.request_prompt_tokens, metrics.request_generation_tokens
    queue, compute = metrics.request_queue_time, metrics.request_prefill_time
    counters = (
        ttft.count,
        sum(metrics.success.values()),
        metrics.success["error"],
        sum(metrics.rejections.values()),
        sum(by_source.values()),
        by_source["local_compute"],
        by_source["local_cache_hit"],
        metrics.generation_tokens,
        prompt.total,
        prompt.count,
        answer.total,
        answer.count,
        ttft.total,
        ttft.count,
        tpot.total,
        tpot.count,
        gap.total,
        gap.count,
        queue.total,
        queue.count,
        compute.total,
        compute.count,
    )
    capacity = len(replica.waiting)
    return Sample(
        wall_seconds,
        counters,
        (tuple(ttft.counts), tuple(tpot.counts), tuple(gap.counts)),
        replica.running_requests(),
        capacity + len(replica.loading) + len(replica.loaded),
        capacity,
        replica.kv_usage(),
    )


def edges(metrics: ReplicaMetrics) -> tuple[tuple[float, ...], ...]:
    """Upper bounds of the histograms, in the order of `HISTOGRAMS`, without +Inf."""
    found = (metrics.time_to_first_token, metrics.request_time_per_output_token, metrics.inter_token_latency)
    return tuple(histogram.edges for histogram in found)


def extrapolated_increase(samples: Sequence[Sample], index: int, start: float, end: float) -> float | None:
    """Prometheus' `increase()` over (start, end]: growth between the first and the last sample, taken on to the window's edges.

    The guess goes up to the edge when it is no further away than 1.1 times the mean distance of samples, else half that distance,
    and never below the point where the counter would have been zero (promql/functions.go, extrapolatedRate).
    """
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    grown = last.counters[index] - first.counters[index]
    span = last.at_seconds - first.at_seconds
    if span <= 0.0:
        return None
    mean_gap = span / (len(samples) - 1)
    to_start, to_end = first.at_seconds - start, end - last.at_seconds
    if to_start >= 1.1 * mean_gap:
        to_start = mean_gap / 2.0
    if grown > 0.0 and first.counters[index] >= 0.0:
        to_start = min(to_start, span * first.counters[index] / grown)
    if to_end >= 1.1 * mean_gap:
        to_end = mean_gap / 2.0
    return grown * (span + to_start + to_end) / span
