"""SGLang's metrics, 0.5 (names from the 0.5.23 wheel; not confirmed on a running pair).

The router sends a request to both phases at once, so the decode pod's TTFT is the whole one, and a prefill pod observes none
(its own guard): asking it would give an empty answer, not zero. The prefill leg is the wait before the first forward pass
plus the stage `prefill_forward`. `num_decode_prealloc_queue_reqs` are requests that a decode pod has no KV room for. There
is no admission limit in this mode and no count of finish reasons, hence no reading for refused and failed requests. Newer
exporters write `sglang_` where this version writes `sglang:`, so both are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase
from equipoise.observe.engines.table import (
    BOTH,
    DECODE,
    PREFILL,
    EngineTable,
    Instrument,
    Kind,
    Metric,
    Reading,
    TtftSource,
    histogram,
)


def _both(name: str) -> tuple[str, str]:
    return f"sglang:{name}", f"sglang_{name}"


# The tokenizer's families are cut by streaming or not, the scheduler's by priority where priorities are on.
_STREAMING = ("is_streaming",)
_PRIORITY = ("priority",)


def _row(
    reading: Reading, kind: Kind, name: str, phases: tuple[Phase, ...], labels: Mapping[str, str] | None = None
) -> Instrument:
    split = _STREAMING if kind in (Kind.INCREASE, Kind.DIFFERENCE) else _PRIORITY
    return Instrument(reading, kind, tuple(Metric(item, labels or {}) for item in _both(name)), phases, split=split)


SGLANG = EngineTable(
    engine="sglang",
    presence=tuple(Metric(name) for name in _both("num_running_reqs")),
    rank_label="dp_rank",
    ttft=TtftSource.DECODE,
    instruments=(
        Instrument(Reading.PREFILLED, Kind.INCREASE, tuple(Metric(name) for name in _both("queue_time_seconds_count")), PREFILL),
        _row(Reading.FINISHED, Kind.INCREASE, "num_requests_total", DECODE),
        _row(Reading.PROMPT_TOKENS, Kind.INCREASE, "prompt_tokens_total", PREFILL),
        _row(Reading.PROMPT_TOKENS_CACHED, Kind.INCREASE, "cached_tokens_total", PREFILL, {"cache_source": "total"}),
        _row(Reading.OUTPUT_TOKENS, Kind.INCREASE, "generation_tokens_total", DECODE),
        _row(Reading.PROMPT_LENGTH_SUM, Kind.DIFFERENCE, "prompt_tokens_total", PREFILL),
        _row(Reading.PROMPT_LENGTH_COUNT, Kind.DIFFERENCE, "num_requests_total", PREFILL),
        _row(Reading.OUTPUT_LENGTH_SUM, Kind.DIFFERENCE, "generation_tokens_total", DECODE),
        _row(Reading.OUTPUT_LENGTH_COUNT, Kind.DIFFERENCE, "num_requests_total", DECODE),
        *histogram(
            _both("time_to_first_token_seconds"),
            (Reading.TTFT_SUM, Reading.TTFT_COUNT, Reading.TTFT_BUCKETS),
            DECODE,
            split=_STREAMING,
        ),
        *histogram(_both("queue_time_seconds"), (Reading.QUEUE_SUM, Reading.QUEUE_COUNT, Reading.QUEUE_BUCKETS), PREFILL),
        *histogram(
            _both("per_stage_req_latency_seconds"),
            (Reading.COMPUTE_SUM, Reading.COMPUTE_COUNT, Reading.COMPUTE_BUCKETS),
            PREFILL,
            {"stage": "prefill_forward"},
        ),
        *histogram(
            _both("request_time_per_output_token_seconds"),
            (Reading.REQUEST_TPOT_SUM, Reading.REQUEST_TPOT_COUNT, Reading.REQUEST_TPOT_BUCKETS),
            DECODE,
            split=_STREAMING,
        ),
        *histogram(
            _both("inter_token_latency_seconds"),
            (Reading.TOKEN_LATENCY_SUM, Reading.TOKEN_LATENCY_COUNT, Reading.TOKEN_LATENCY_BUCKETS),
            DECODE,
        ),
        _row(Reading.RUNNING, Kind.MEAN, "num_running_reqs", BOTH),
        _row(Reading.WAITING, Kind.MEAN, "num_queue_reqs", BOTH),
        _row(Reading.WAITING_FOR_CAPACITY, Kind.MEAN, "num_decode_prealloc_queue_reqs", DECODE),
        _row(Reading.KV_USAGE, Kind.AVERAGE, "token_usage", BOTH),
        _row(Reading.KV_USAGE_PEAK, Kind.PEAK, "token_usage", BOTH),
        _row(Reading.RUNNING_NOW, Kind.NOW, "num_running_reqs", BOTH),
        _row(Reading.RUNNING_BEFORE, Kind.BEFORE, "num_running_reqs", BOTH),
        _row(Reading.WAITING_NOW, Kind.NOW, "num_queue_reqs", BOTH),
        _row(Reading.WAITING_BEFORE, Kind.BEFORE, "num_queue_reqs", BOTH),
    ),
)
