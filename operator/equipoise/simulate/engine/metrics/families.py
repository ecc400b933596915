"""The metric families of a vLLM 0.32 engine in a prefill/decode pair, in the order in which it lists them.

Names, types and labels as scraped from a real pair; what real engines count but the model does not (flops, multi-modal cache,
offloading) stays at the zero that a real engine shows there by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from equipoise.simulate.engine.metrics.histogram import Histogram
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.replica import Replica


class Generation(StrEnum):
    """Which names the page uses. `OLD`: up to vLLM 0.10, before the renames and the P/D counters."""

    CURRENT = "current"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """A histogram without labels of its own."""

    name: str
    help: str
    read: Callable[[ReplicaMetrics], Histogram]


@dataclass(frozen=True, slots=True)
class NumberFamily:
    """A counter or a gauge; with `label`, one number per value of it. `engine_label` False: it carries the model's name alone."""

    name: str
    help: str
    kind: str
    read: Callable[[Replica, ReplicaMetrics], float | Mapping[str, float]]
    label: str = ""
    engine_label: bool = True


Family = HistogramFamily | NumberFamily


def _counter(name: str, text: str, read: Callable[[Replica, ReplicaMetrics], float]) -> NumberFamily:
    return NumberFamily(name, text, "counter", read)


def _counters(
    name: str, text: str, label: str, read: Callable[[Replica, ReplicaMetrics], Mapping[str, float]], engine_label: bool = True
) -> NumberFamily:
    return NumberFamily(name, text, "counter", read, label, engine_label)


def _gauge(name: str, text: str, read: Callable[[Replica, ReplicaMetrics], float]) -> NumberFamily:
    return NumberFamily(name, text, "gauge", read)


def _gauges(name: str, text: str, label: str, read: Callable[[Replica, ReplicaMetrics], Mapping[str, float]]) -> NumberFamily:
    return NumberFamily(name, text, "gauge", read, label)


def waiting_by_reason(replica: Replica, metrics: ReplicaMetrics) -> Mapping[str, float]:
    """Capacity: no room yet. Deferred: KV is being copied, or is there and waits for the next step or a free slot."""
    return {"capacity": len(replica.waiting), "deferred": len(replica.loading) + len(replica.loaded)}


def kv_fetch_by_stage(replica: Replica, metrics: ReplicaMetrics) -> Mapping[str, float]:
    """The decode legs among the waiting requests, by how far their KV has come."""
    to_start = sum(1 for request in replica.waiting if request.decode_queued >= 0.0 and not request.local)
    return {"waiting_to_start": to_start, "in_progress": len(replica.loading), "completed_waiting": len(replica.loaded)}


NIXL: tuple[Family, ...] = (
    HistogramFamily("vllm:nixl_xfer_time_seconds", "KV transfers by NIXL: duration.", lambda m: m.nixl_xfer_time),
    HistogramFamily("vllm:nixl_post_time_seconds", "KV transfers by NIXL: time to post them.", lambda m: m.nixl_post_time),
    HistogramFamily("vllm:nixl_bytes_transferred", "KV transfers by NIXL: bytes.", lambda m: m.nixl_bytes_transferred),
    HistogramFamily("vllm:nixl_num_descriptors", "KV transfers by NIXL: descriptors.", lambda m: m.nixl_num_descriptors),
    _counter("vllm:nixl_num_failed_transfers", "Failed KV transfers, handshakes and notices.", lambda r, m: m.failed_transfers),
    _counter("vllm:nixl_num_failed_notifications", "Failed notices about KV transfers.", lambda r, m: m.failed_notifications),
    _counter("vllm:nixl_num_kv_expired_reqs", "Requests whose KV nobody fetched in time; on prefill.", lambda r, m: m.kv_expired),
    _counter("vllm:nixl_num_notifications_after_expiry", "Notices about KV that had expired.", lambda r, m: 0),
)
WORK_ESTIMATES: tuple[Family, ...] = (
    _counter("vllm:estimated_flops_per_gpu", "Estimated floating point operations.", lambda r, m: 0),
    _counter("vllm:estimated_read_bytes_per_gpu", "Estimated bytes read.", lambda r, m: 0),
    _counter("vllm:estimated_write_bytes_per_gpu", "Estimated bytes written.", lambda r, m: 0),
)
REQUESTS: tuple[Family, ...] = (
    _gauge("vllm:num_requests_running", "Requests in the running batch.", lambda r, m: r.running_requests()),
    _gauge(
        "vllm:num_requests_waiting", "Requests that wait.", lambda r, m: len(r.waiting) + len(r.loading) + len(r.loaded)
    ),
)  # fmt: skip
WAITING_BY_REASON: Family = _gauges(
    "vllm:num_requests_waiting_by_reason", "Requests that wait, by reason.", "reason", waiting_by_reason
)
KV_FETCH: Family = _gauges(
    "vllm:num_requests_kv_fetch_by_stage", "Requests that wait for KV, by stage.", "stage", kv_fetch_by_stage
)
SLEEP_STATE: Family = _gauges(
    "vllm:engine_sleep_state", "1 for the state the engine is in.", "sleep_state",
    lambda r, m: {"awake": 1, "weights_offloaded": 0, "discard_all": 0},
)  # fmt: skip


def kv_usage(name: str) -> Family:
    """Share of the KV cache in use, under either generation's name."""
    return _gauge(name, "Share of the KV cache in use, 0 to 1.", lambda r, m: r.kv_usage())


def prefix_cache(prefix: str) -> tuple[Family, ...]:
    """The prefix cache's counters, under either generation's prefix."""
    return (
        _counter(f"vllm:{prefix}_queries", "Prefix cache: tokens looked up.", lambda r, m: m.prefix_cache_queries),
        _counter(f"vllm:{prefix}_hits", "Prefix cache: tokens found.", lambda r, m: m.prefix_cache_hits),
    )


OTHER_CACHES: tuple[Family, ...] = (
    _counter(
        "vllm:external_prefix_cache_queries", "Tokens asked of other instances.", lambda r, m: m.external_prefix_cache_queries
    ),
    _counter(
        "vllm:external_prefix_cache_hits", "Tokens that came from other instances.", lambda r, m: m.external_prefix_cache_hits
    ),
    _counter("vllm:mm_cache_queries", "Multi-modal cache: items looked up.", lambda r, m: 0),
    _counter("vllm:mm_cache_hits", "Multi-modal cache: items found.", lambda r, m: 0),
)
PREEMPTIONS: Family = _counter("vllm:num_preemptions", "Preemptions so far.", lambda r, m: m.preemptions)
PROMPT_TOKENS: Family = _counter(
    "vllm:prompt_tokens", "Prompt tokens, transferred ones too.", lambda r, m: sum(m.prompt_tokens_by_source.values())
)
PROMPT_TOKENS_BY_SOURCE: tuple[Family, ...] = (
    _counters("vllm:prompt_tokens_by_source", "Prompt tokens by source.", "source", lambda r, m: m.prompt_tokens_by_source),
    _counter(
        "vllm:prompt_tokens_cached", "Prompt tokens from any cache.",
        lambda r, m: m.prefix_cache_hits + m.external_prefix_cache_hits,
    ),
    _counters(
        "vllm:prompt_tokens_cached_by_source", "Prompt tokens from caches, by tier.", "source",
        lambda r, m: {
            "device": m.prefix_cache_hits, "host": 0, "p2p": m.external_prefix_cache_hits, "disk": 0, "external_unspecified": 0,
        },
    ),
)  # fmt: skip
GENERATION_TOKENS: Family = _counter("vllm:generation_tokens", "Output tokens.", lambda r, m: m.generation_tokens)
SUCCESS: Family = _counters("vllm:request_success", "Requests that ended, by reason.", "finished_reason", lambda r, m: m.success)
REJECTIONS: Family = _counters(
    "vllm:admission_rejections", "Requests refused by a queue limit.", "reason", lambda r, m: m.rejections, engine_label=False
)
SIZES: tuple[Family, ...] = (
    HistogramFamily("vllm:request_prompt_tokens", "Prompt tokens per request.", lambda m: m.request_prompt_tokens),
    HistogramFamily("vllm:request_generation_tokens", "Output tokens per request.", lambda m: m.request_generation_tokens),
    HistogramFamily("vllm:iteration_tokens_total", "Tokens per engine step.", lambda m: m.iteration_tokens),
    HistogramFamily(
        "vllm:request_max_num_generation_tokens", "Most output tokens asked for.", lambda m: m.request_max_num_generation_tokens
    ),
    HistogramFamily("vllm:request_params_n", "Parameter n of requests.", lambda m: m.request_params_n),
    HistogramFamily("vllm:request_params_max_tokens", "Parameter max_tokens of requests.", lambda m: m.request_params_max_tokens),
)
TTFT: Family = HistogramFamily(
    "vllm:time_to_first_token_seconds", "Arrival here to first token.", lambda m: m.time_to_first_token
)


def inter_token(name: str) -> Family:
    """Time between tokens, one sample per step and request, under either generation's name."""
    return HistogramFamily(name, "Time from one token to the next.", lambda m: m.inter_token_latency)


REQUEST_TPOT: Family = HistogramFamily(
    "vllm:request_time_per_output_token_seconds", "Mean time per output token of a request.",
    lambda m: m.request_time_per_output_token,
)  # fmt: skip
REQUEST_TIMES: tuple[Family, ...] = (
    HistogramFamily("vllm:e2e_request_latency_seconds", "Arrival here to last token.", lambda m: m.e2e_request_latency),
    HistogramFamily("vllm:request_queue_time_seconds", "Time in state WAITING.", lambda m: m.request_queue_time),
    HistogramFamily("vllm:request_inference_time_seconds", "Time in state RUNNING.", lambda m: m.request_inference_time),
    HistogramFamily("vllm:request_prefill_time_seconds", "Time from scheduled to first token.", lambda m: m.request_prefill_time),
    HistogramFamily("vllm:request_decode_time_seconds", "Time from first to last token.", lambda m: m.request_decode_time),
)
LAST: tuple[Family, ...] = (
    HistogramFamily("vllm:request_num_preemptions", "Preemptions per request.", lambda m: m.request_num_preemptions),
    HistogramFamily(
        "vllm:request_prefill_kv_computed_tokens", "Prompt tokens not from the local cache, per request.",
        lambda m: m.request_prefill_kv_computed_tokens,
    ),
)  # fmt: skip


def families(generation: Generation, fetches_kv: bool) -> tuple[Family, ...]:
    """All families of one engine. `fetches_kv`: started as a KV consumer (or both); a producer lacks the fetch stages."""
    if generation is Generation.OLD:
        return (
            *REQUESTS, kv_usage("vllm:gpu_cache_usage_perc"), *prefix_cache("gpu_prefix_cache"), PREEMPTIONS, PROMPT_TOKENS,
            GENERATION_TOKENS, SUCCESS, *SIZES, TTFT, inter_token("vllm:time_per_output_token_seconds"), *REQUEST_TIMES,
        )  # fmt: skip
    fetch = (KV_FETCH,) if fetches_kv else ()
    return (
        *NIXL, *WORK_ESTIMATES, *REQUESTS, WAITING_BY_REASON, *fetch, SLEEP_STATE, kv_usage("vllm:kv_cache_usage_perc"),
        *prefix_cache("prefix_cache"), *OTHER_CACHES, PREEMPTIONS, PROMPT_TOKENS, *PROMPT_TOKENS_BY_SOURCE, GENERATION_TOKENS,
        SUCCESS, REJECTIONS, *SIZES, TTFT, inter_token("vllm:inter_token_latency_seconds"), REQUEST_TPOT, *REQUEST_TIMES, *LAST,
    )  # fmt: skip
