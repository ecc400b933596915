"""The same readings per variant: what calibrating a variant's speed needs. Pure."""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.observe.engines.table import Reading, TtftSource
from equipoise.observe.latency import REQUEST_TPOT, TTFT
from equipoise.observe.reader import COUNT_EPSILON, PhaseReader
from equipoise.observe.types import VariantObservation


def by_variant(reader: PhaseReader) -> dict[str, VariantObservation]:
    """One entry per variant (Deployment name) that has sampled pods; empty where the phase cannot be read."""
    if reader.census.unknown is not None:
        return {}
    tables = {reading: _values(reader, reading) for reading in _READINGS}
    window = reader.window_seconds
    prefill = reader.phase is Phase.PREFILL
    lengths = (
        (Reading.PROMPT_LENGTH_SUM, Reading.PROMPT_LENGTH_COUNT)
        if prefill
        else (Reading.OUTPUT_LENGTH_SUM, Reading.OUTPUT_LENGTH_COUNT)
    )
    latency = _latency(reader)
    result = {}
    for name, pods in sorted(reader.census.variant_pods.items()):

        def value(reading: Reading, of: str = name) -> float | None:
            return tables[reading].get(of)

        def ratio(total: Reading, count: Reading, of: str = name) -> float | None:
            above, below = tables[total].get(of), tables[count].get(of)
            return above / below if above is not None and below is not None and below > COUNT_EPSILON else None

        def per_second(amount: float | None) -> float | None:
            return None if amount is None else amount / window

        running = value(Reading.RUNNING)
        result[name] = VariantObservation(
            pods=pods,
            requests_per_second=per_second(value(reader.finished)),
            tokens_per_second=per_second(_computed(tables, name) if prefill else value(Reading.OUTPUT_TOKENS)),
            mean_tokens=ratio(*lengths),
            latency_mean_seconds=ratio(*latency),
            latency_samples=value(latency[1]) or 0.0,
            queue_mean_seconds=ratio(Reading.QUEUE_SUM, Reading.QUEUE_COUNT),
            compute_mean_seconds=ratio(Reading.COMPUTE_SUM, Reading.COMPUTE_COUNT) if prefill else None,
            running_requests=running / pods if running is not None and pods else None,
            kv_usage_share=value(Reading.KV_USAGE),
        )
    return result


def _latency(reader: PhaseReader) -> tuple[Reading, Reading]:
    if reader.phase is Phase.DECODE:
        return REQUEST_TPOT[0], REQUEST_TPOT[1]
    if reader.table.ttft is TtftSource.LEGS:
        return TTFT[0], TTFT[1]
    return Reading.COMPUTE_SUM, Reading.COMPUTE_COUNT


_READINGS = (
    Reading.PREFILLED,
    Reading.FINISHED,
    Reading.OUTPUT_TOKENS,
    Reading.PROMPT_TOKENS,
    Reading.PROMPT_TOKENS_COMPUTED,
    Reading.PROMPT_TOKENS_CACHED,
    Reading.PROMPT_LENGTH_SUM,
    Reading.PROMPT_LENGTH_COUNT,
    Reading.OUTPUT_LENGTH_SUM,
    Reading.OUTPUT_LENGTH_COUNT,
    Reading.TTFT_SUM,
    Reading.TTFT_COUNT,
    Reading.REQUEST_TPOT_SUM,
    Reading.REQUEST_TPOT_COUNT,
    Reading.QUEUE_SUM,
    Reading.QUEUE_COUNT,
    Reading.COMPUTE_SUM,
    Reading.COMPUTE_COUNT,
    Reading.RUNNING,
    Reading.KV_USAGE,
)


def _values(reader: PhaseReader, reading: Reading) -> dict[str, float]:
    return {row.variant: row.value for row in reader.rows(reading) if math.isfinite(row.value)}


def _computed(tables: dict[Reading, dict[str, float]], variant: str) -> float | None:
    by_source = tables[Reading.PROMPT_TOKENS_COMPUTED].get(variant)
    if by_source is not None:
        return by_source
    prompt, cached = tables[Reading.PROMPT_TOKENS].get(variant), tables[Reading.PROMPT_TOKENS_CACHED].get(variant)
    return max(0.0, prompt - cached) if prompt is not None and cached is not None else None
