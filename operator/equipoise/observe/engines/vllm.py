"""vLLM's metrics, 0.8 to 0.32 (names confirmed on the /metrics pages of a running 0.32.0 prefill/decode pair).

What is easily read wrong, and therefore asked for in one way only:

* A prefill pod answers one token, so it puts a 0.0 into TPOT for every request: TPOT is asked of decode pods alone.
* Its `num_requests_running` is nearly always 0 (a one-step prefill ends in its own step): never its use, and never its idleness.
* TTFT of a prefill pod is the prefill leg; of a decode pod it is KV transfer, decode queue and first step. Their means add.
* `prompt_tokens_total` of a decode pod counts the transferred tokens again, so tokens are taken from prefill pods.
* `request_success_total` counts each leg, and never the clients that gave up.
"""

from __future__ import annotations

from equipoise.observe.engines.table import (
    BOTH,
    DECODE,
    PREFILL,
    EngineTable,
    Kind,
    Metric,
    Reading,
    TtftSource,
    counter,
    gauge,
    histogram,
    part_of_mean,
)

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
BY_SOURCE = "vllm:prompt_tokens_by_source_total"

VLLM = EngineTable(
    engine="vllm",
    presence=(Metric(RUNNING),),
    rank_label="engine",
    ttft=TtftSource.LEGS,
    instruments=(
        # A prefill pod that was decode a moment ago still finishes answers: its first tokens tell its prompts from them.
        counter(Reading.PREFILLED, "vllm:time_to_first_token_seconds_count", phases=PREFILL),
        counter(Reading.FINISHED, "vllm:request_success_total", phases=DECODE, split=("finished_reason",)),
        counter(Reading.FAILED, "vllm:request_success_total", finished_reason="error"),
        counter(Reading.REFUSED, "vllm:admission_rejections_total", split=("reason",)),
        counter(Reading.PROMPT_TOKENS, "vllm:prompt_tokens_total", phases=PREFILL),
        counter(Reading.PROMPT_TOKENS_COMPUTED, BY_SOURCE, source="local_compute"),
        # Only for versions before the count by source; in tokens, like it.
        counter(Reading.PROMPT_TOKENS_CACHED, "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", phases=PREFILL),
        counter(Reading.OUTPUT_TOKENS, "vllm:generation_tokens_total", phases=DECODE),
        part_of_mean(Reading.PROMPT_LENGTH_SUM, "vllm:request_prompt_tokens_sum", PREFILL),
        part_of_mean(Reading.PROMPT_LENGTH_COUNT, "vllm:request_prompt_tokens_count", PREFILL),
        part_of_mean(Reading.OUTPUT_LENGTH_SUM, "vllm:request_generation_tokens_sum", DECODE),
        part_of_mean(Reading.OUTPUT_LENGTH_COUNT, "vllm:request_generation_tokens_count", DECODE),
        *histogram(("vllm:time_to_first_token_seconds",), (Reading.TTFT_SUM, Reading.TTFT_COUNT, Reading.TTFT_BUCKETS), BOTH),
        *histogram(
            ("vllm:request_time_per_output_token_seconds",),
            (Reading.REQUEST_TPOT_SUM, Reading.REQUEST_TPOT_COUNT, Reading.REQUEST_TPOT_BUCKETS),
            DECODE,
        ),
        # One sample per decode step and request, at once; stands in while too few requests have finished. Renamed in 0.11,
        # old name gone in 2026.
        *histogram(
            ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
            (Reading.TOKEN_LATENCY_SUM, Reading.TOKEN_LATENCY_COUNT, Reading.TOKEN_LATENCY_BUCKETS),
            DECODE,
        ),
        # Their first bucket is 300 ms wide, so only the means are taken.
        part_of_mean(Reading.QUEUE_SUM, "vllm:request_queue_time_seconds_sum", BOTH, warm_only=True),
        part_of_mean(Reading.QUEUE_COUNT, "vllm:request_queue_time_seconds_count", BOTH, warm_only=True),
        part_of_mean(Reading.COMPUTE_SUM, "vllm:request_prefill_time_seconds_sum", PREFILL, warm_only=True),
        part_of_mean(Reading.COMPUTE_COUNT, "vllm:request_prefill_time_seconds_count", PREFILL, warm_only=True),
        gauge(Reading.RUNNING, Kind.MEAN, RUNNING),
        gauge(Reading.WAITING, Kind.MEAN, WAITING),
        gauge(Reading.WAITING_FOR_CAPACITY, Kind.MEAN, WAITING_BY_REASON, reason="capacity"),
        gauge(Reading.KV_USAGE, Kind.AVERAGE, *KV_USAGE),
        gauge(Reading.KV_USAGE_PEAK, Kind.PEAK, *KV_USAGE),
        gauge(Reading.RUNNING_NOW, Kind.NOW, RUNNING),
        gauge(Reading.RUNNING_BEFORE, Kind.BEFORE, RUNNING),
        gauge(Reading.WAITING_NOW, Kind.NOW, WAITING),
        gauge(Reading.WAITING_BEFORE, Kind.BEFORE, WAITING),
    ),
)
