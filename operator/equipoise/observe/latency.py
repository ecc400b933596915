"""The latency of one phase, and the whole TTFT out of its legs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from equipoise.api.identity import Phase
from equipoise.observe.engines.table import Reading, TtftSource
from equipoise.observe.histogram import Histogram
from equipoise.observe.legs import SumOfLegs
from equipoise.observe.reader import PhaseReader
from equipoise.observe.types import Idle, Known, Signal, Unknown, UnknownReason

TTFT = (Reading.TTFT_SUM, Reading.TTFT_COUNT, Reading.TTFT_BUCKETS)
REQUEST_TPOT = (Reading.REQUEST_TPOT_SUM, Reading.REQUEST_TPOT_COUNT, Reading.REQUEST_TPOT_BUCKETS)
TOKEN_LATENCY = (Reading.TOKEN_LATENCY_SUM, Reading.TOKEN_LATENCY_COUNT, Reading.TOKEN_LATENCY_BUCKETS)
QUEUE = (Reading.QUEUE_SUM, Reading.QUEUE_COUNT, Reading.QUEUE_BUCKETS)
COMPUTE = (Reading.COMPUTE_SUM, Reading.COMPUTE_COUNT, Reading.COMPUTE_BUCKETS)


@dataclass(frozen=True, slots=True)
class LatencyView:
    """One latency against its target. Each signal fails by itself: a mean survives the loss of the buckets."""

    mean: Signal
    percentile: Signal
    bucket: Signal
    attainment: Signal
    bounds: tuple[float, float] | None = None
    source: str = ""
    histogram: Histogram | None = None


def unknown_view(reason: Unknown) -> LatencyView:
    """A latency that cannot be told at all."""
    return LatencyView(reason, reason, reason, reason)


def view(reader: PhaseReader, names: tuple[Reading, Reading, Reading], target_seconds: float) -> LatencyView:
    """Mean, percentile and attainment out of one histogram family."""
    total, count, buckets = names
    minimum = reader.settings.minimum_samples
    mean = reader.mean(total, count, minimum)
    source = reader.table.metric_name(total).removesuffix("_sum")
    histogram = reader.histogram(buckets)
    if isinstance(histogram, Unknown):
        return LatencyView(mean, histogram, histogram, histogram, None, source)
    short = reader.too_few(histogram.count, minimum)
    if short is not None:
        return LatencyView(mean, short, short, short, None, source)
    share = histogram.share_within(target_seconds)
    tail = histogram.percentile(reader.scope.targets.percentile)
    if share is None or tail is None:
        raise AssertionError("a histogram with samples has shares")
    samples = histogram.count
    return LatencyView(
        mean,
        reader.known(tail.value, samples),
        reader.known(tail.width, samples),
        reader.known(share.value, samples),
        (share.low, share.high),
        source,
        histogram,
    )


def prefill_latency(reader: PhaseReader) -> LatencyView:
    """The prefill leg of TTFT against the whole TTFT target."""
    target = reader.scope.targets.ttft_seconds
    if reader.table.ttft is TtftSource.LEGS:
        return view(reader, TTFT, target)
    queue, compute = view(reader, QUEUE, target), view(reader, COMPUTE, target)
    return add_views(reader, queue, compute, target)


def decode_latency(reader: PhaseReader) -> LatencyView:
    """TPOT per request; while too few requests have finished, the time between tokens, which shows at once."""
    target = reader.scope.targets.tpot_seconds
    per_request = view(reader, REQUEST_TPOT, target)
    if isinstance(per_request.mean, Known | Idle):
        return per_request
    per_token = view(reader, TOKEN_LATENCY, target)
    return per_token if isinstance(per_token.mean, Known) else per_request


def add_views(reader: PhaseReader, first: LatencyView, second: LatencyView, target_seconds: float) -> LatencyView:
    """The sum of two legs: means add; share and percentile are estimated as if the legs were independent."""
    mean = _add(first.mean, second.mean)
    source = " + ".join(name for name in (first.source, second.source) if name)
    for leg in (first, second):
        if not isinstance(leg.attainment, Known):
            return LatencyView(mean, leg.percentile, leg.bucket, leg.attainment, None, source)
    if first.histogram is None or second.histogram is None:
        raise AssertionError("a known attainment comes from a histogram")
    legs = SumOfLegs(first.histogram, second.histogram)
    bounded = legs.attainment(target_seconds)
    samples = min(first.histogram.count, second.histogram.count)
    tail = legs.percentile(reader.scope.targets.percentile)
    percentile: Signal
    if tail is None:
        percentile = Unknown(UnknownReason.NOT_A_NUMBER, "the percentile lies beyond the last finite bucket of a leg")
    else:
        percentile = reader.known(tail, samples)
    widths = [leg.bucket.value for leg in (first, second) if isinstance(leg.bucket, Known)]
    return LatencyView(
        mean,
        percentile,
        reader.known(sum(widths), samples),
        reader.known(bounded.value, samples),
        (bounded.low, bounded.high),
        source,
    )


@dataclass(frozen=True, slots=True)
class WholeTtft:
    """The TTFT of requests, and what the decode side has of it."""

    whole: LatencyView
    decode_leg_mean: Signal
    decode_leg_percentile: Signal


def whole_ttft(prefill: LatencyView, decode_reader: PhaseReader) -> WholeTtft:
    """Put the legs together, or take the decode pods' word where they time the whole."""
    target = decode_reader.scope.targets.ttft_seconds
    decode = view(decode_reader, TTFT, target)
    if decode_reader.table.ttft is TtftSource.LEGS:
        return WholeTtft(add_views(decode_reader, prefill, decode, target), decode.mean, decode.percentile)
    leg: Signal = decode.mean
    if isinstance(decode.mean, Known) and isinstance(prefill.mean, Known):
        leg = decode_reader.known(max(0.0, decode.mean.value - prefill.mean.value), decode.mean.samples)
    elif isinstance(decode.mean, Known):
        leg = prefill.mean
    message = f"{decode_reader.table.engine} times the {Phase.DECODE.value} leg only together with the {Phase.PREFILL.value} leg"
    return WholeTtft(decode, leg, Unknown(UnknownReason.NOT_EXPOSED, message))


def _add(first: Signal, second: Signal) -> Signal:
    if isinstance(first, Known) and isinstance(second, Known):
        samples = [item.samples for item in (first, second) if item.samples is not None]
        return Known(first.value + second.value, min(samples, default=None), max(first.age_seconds, second.age_seconds))
    return first if not isinstance(first, Known) else second
