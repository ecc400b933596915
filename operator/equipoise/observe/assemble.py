"""Readings and roll call into one ServiceObservation. Pure: the same for Prometheus and for the direct scrape."""

from __future__ import annotations

from dataclasses import replace

from equipoise.api.identity import Phase
from equipoise.observe.census import PhaseCensus
from equipoise.observe.demand import offered
from equipoise.observe.engines.table import EngineTable, Reading
from equipoise.observe.latency import LatencyView, decode_latency, prefill_latency, whole_ttft
from equipoise.observe.reader import Number, PhaseReader
from equipoise.observe.readings import Readings
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import PhaseObservation, ServiceObservation, Signal, Unknown, UnknownReason
from equipoise.observe.variants import by_variant

_MINIMUM_FOR_LENGTHS = 1.0  # a mean length is worth having from the first request on; its sample count goes with it


def assemble(
    scope: ServiceScope,
    table: EngineTable,
    readings: Readings,
    census: dict[Phase, PhaseCensus],
    problems: tuple[str, ...],
    interval_seconds: float,
    settings: ObserveSettings,
    now_seconds: float,
) -> ServiceObservation:
    """One service's observation of the window that ends at `now_seconds`."""
    prefill = PhaseReader(scope, Phase.PREFILL, table, readings, census[Phase.PREFILL], settings)
    decode = PhaseReader(scope, Phase.DECODE, table, readings, census[Phase.DECODE], settings)
    offered_prefill, offered_decode = offered(prefill, decode)
    prefill_view, decode_view = prefill_latency(prefill), decode_latency(decode)
    ttft = whole_ttft(prefill_view, decode)
    computed = computed_tokens(prefill)
    prefill_observation = replace(
        _phase(prefill, prefill_view, offered_prefill),
        tokens_per_second=computed if isinstance(computed, Unknown) else prefill.per_second(computed),
        mean_tokens=prefill.mean(Reading.PROMPT_LENGTH_SUM, Reading.PROMPT_LENGTH_COUNT, _MINIMUM_FOR_LENGTHS),
        prefix_hit_share=_hit_share(prefill, computed),
        per_variant=by_variant(prefill),
    )
    decode_observation = replace(
        _phase(decode, decode_view, offered_decode),
        tokens_per_second=decode.rate(Reading.OUTPUT_TOKENS),
        mean_tokens=decode.mean(Reading.OUTPUT_LENGTH_SUM, Reading.OUTPUT_LENGTH_COUNT, _MINIMUM_FOR_LENGTHS),
        prefix_hit_share=Unknown(UnknownReason.NOT_EXPOSED, "a decode pod takes its prompts over and computes none"),
        recomputed_tokens_per_second=decode.rate(Reading.PROMPT_TOKENS_COMPUTED),
        per_variant=by_variant(decode),
    )
    return ServiceObservation(
        service=scope.key,
        at_seconds=now_seconds,
        window_seconds=readings.window_seconds,
        prefill=_with_variant_rates(prefill_observation),
        decode=_with_variant_rates(decode_observation),
        ttft_decode_leg_mean_seconds=ttft.decode_leg_mean,
        ttft_decode_leg_percentile_seconds=ttft.decode_leg_percentile,
        ttft_attainment=ttft.whole.attainment,
        ttft_attainment_bounds=ttft.whole.bounds,
        ttft_mean_seconds=ttft.whole.mean,
        ttft_percentile_seconds=ttft.whole.percentile,
        scrape_interval_seconds=interval_seconds,
        problems=problems,
    )


def unreadable(scope: ServiceScope, reason: Unknown, window_seconds: float, now_seconds: float) -> ServiceObservation:
    """A service of which nothing can be told, every signal with the same reason."""
    fields = PhaseObservation.__dataclass_fields__.values()
    blank = {item.name: reason for item in fields if isinstance(item.default, Unknown)}
    phase = replace(PhaseObservation(), **blank)  # type: ignore[arg-type]
    return ServiceObservation(
        scope.key,
        now_seconds,
        window_seconds,
        phase,
        phase,
        reason,
        reason,
        reason,
        ttft_mean_seconds=reason,
        ttft_percentile_seconds=reason,
        problems=(reason.message,),
    )


def computed_tokens(reader: PhaseReader) -> Number:
    """Prompt tokens that prefill computed in the window: by source where the engine says so, else all less the cached."""
    by_source = reader.total(Reading.PROMPT_TOKENS_COMPUTED)
    if not isinstance(by_source, Unknown) or by_source.reason is not UnknownReason.NOT_EXPOSED:
        return by_source
    prompt = reader.total(Reading.PROMPT_TOKENS)
    cached = reader.total(Reading.PROMPT_TOKENS_CACHED)
    for part in (prompt, cached):
        if isinstance(part, Unknown):
            return part
    assert not isinstance(prompt, Unknown) and not isinstance(cached, Unknown)  # noqa: S101, PT018 - for the type checker
    return max(0.0, prompt - cached)


def _hit_share(reader: PhaseReader, computed: Number) -> Signal:
    prompt = reader.total(Reading.PROMPT_TOKENS)
    if isinstance(prompt, Unknown):
        return prompt
    if isinstance(computed, Unknown):
        return computed
    short = reader.too_few(prompt, _MINIMUM_FOR_LENGTHS)
    if short is not None:
        return short
    return reader.known(min(1.0, max(0.0, 1.0 - computed / prompt)), samples=prompt)


def _phase(reader: PhaseReader, latency: LatencyView, offered_rate: Signal) -> PhaseObservation:
    return PhaseObservation(
        requests_per_second=offered_rate,
        served_requests_per_second=reader.rate(reader.finished),
        refused_requests_per_second=_zero_is_known(reader, Reading.REFUSED),
        failed_requests_per_second=_zero_is_known(reader, Reading.FAILED),
        latency_mean_seconds=latency.mean,
        latency_percentile_seconds=latency.percentile,
        latency_percentile_bucket_seconds=latency.bucket,
        attainment=latency.attainment,
        attainment_bounds=latency.bounds,
        latency_source=latency.source,
        queue_mean_seconds=reader.mean(Reading.QUEUE_SUM, Reading.QUEUE_COUNT, reader.settings.minimum_samples),
        running_requests=reader.gauge(Reading.RUNNING),
        waiting_requests=reader.gauge(Reading.WAITING),
        waiting_for_capacity_requests=reader.gauge(Reading.WAITING_FOR_CAPACITY),
        kv_usage_share=reader.average(Reading.KV_USAGE),
        kv_usage_share_peak=reader.peak(Reading.KV_USAGE_PEAK),
        pods_ready=reader.census.ready,
        pods_sampled=len(reader.census.sampled),
        pods_missing=reader.census.missing,
    )


def _zero_is_known(reader: PhaseReader, reading: Reading) -> Signal:
    """Of refusals and failures, none is a finding and not idleness."""
    total = reader.total(reading)
    return total if isinstance(total, Unknown) else reader.known(total / reader.window_seconds, samples=total)


def _with_variant_rates(phase: PhaseObservation) -> PhaseObservation:
    rates = {name: item.tokens_per_second for name, item in phase.per_variant.items() if item.tokens_per_second is not None}
    return replace(phase, per_variant_tokens_per_second=rates)
