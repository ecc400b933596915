"""Counters and histograms of one engine.

The step loop only appends what happened; the histograms are filled when somebody asks (`collect`), so that a simulation that
looks at metrics every few seconds pays little for them.
"""

from __future__ import annotations

from equipoise.simulate.engine.metrics import buckets
from equipoise.simulate.engine.metrics.histogram import Histogram
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import ReplicaSpec

POST_SECONDS = 0.0015  # share of a transfer that NIXL books as posting it (measured on a pair over loopback: 1 to 2.3 ms)


class ReplicaMetrics:
    """vLLM's metrics of one engine, as numbers. Names follow vLLM's without the prefix; times are seconds."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.prefill_finished: list[Request] = []
        self.first_tokens: list[Request] = []
        self.decode_finished: list[Request] = []
        self.transfers: list[Request] = []
        self.rejections = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}
        self.success = {"stop": 0, "length": 0, "abort": 0, "error": 0, "repetition": 0}
        self.prompt_tokens_by_source = {"local_compute": 0, "local_cache_hit": 0, "external_kv_transfer": 0}
        self.generation_tokens = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.external_prefix_cache_queries = 0
        self.external_prefix_cache_hits = 0
        self.preemptions = 0
        self.kv_expired = 0
        self.failed_transfers = 0
        self.failed_notifications = 0
        tokens = buckets.token_counts(spec.limits.max_model_len)
        self.time_to_first_token = Histogram(buckets.TTFT_SECONDS)
        self.inter_token_latency = Histogram(buckets.INTER_TOKEN_SECONDS)
        self.request_time_per_output_token = Histogram(buckets.INTER_TOKEN_SECONDS)
        self.e2e_request_latency = Histogram(buckets.REQUEST_SECONDS)
        self.request_queue_time = Histogram(buckets.REQUEST_SECONDS)
        self.request_inference_time = Histogram(buckets.REQUEST_SECONDS)
        self.request_prefill_time = Histogram(buckets.REQUEST_SECONDS)
        self.request_decode_time = Histogram(buckets.REQUEST_SECONDS)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.request_max_num_generation_tokens = Histogram(tokens)
        self.request_params_max_tokens = Histogram(tokens)
        self.request_prefill_kv_computed_tokens = Histogram(tokens)
        self.request_num_preemptions = Histogram(buckets.PREEMPTIONS)
        self.request_params_n = Histogram(buckets.PARAMETER_N)
        self.iteration_tokens = Histogram(buckets.ITERATION_TOKENS)
        self.nixl_xfer_time = Histogram(buckets.NIXL_TRANSFER_SECONDS)
        self.nixl_post_time = Histogram(buckets.NIXL_POST_SECONDS)
        self.nixl_bytes_transferred = Histogram(buckets.NIXL_BYTES)
        self.nixl_num_descriptors = Histogram(buckets.NIXL_DESCRIPTORS)
        self._block_size = spec.limits.block_size
        self._block_bytes = spec.limits.block_size * spec.kv_bytes_per_token

    def steps(self, steps: int, size: int, first: float, slope: float, fresh: int, prompt_tokens: int, prompts: int) -> None:
        """Book a span of `steps` steps: `size` sequences decode, `fresh` of them get their first token in the first step;
        `prompt_tokens` are computed in it and `prompts` prompts end with it.
        """
        self.iteration_tokens.observe(prompt_tokens + size + prompts, steps)
        if size:
            self.generation_tokens += size * steps
            self.inter_token_latency.observe_steps(steps, size, first, slope, fresh)

    def inter_token(self, seconds: float) -> None:
        """The gap that a preemption tore into an answer."""
        self.generation_tokens += 1
        self.inter_token_latency.observe(seconds)

    def kv_load_failed(self, request: Request, now: float) -> None:
        """The prefill engine died with the KV. Measured: two failed transfers; the fast failure is a sample in each latency."""
        self.failed_transfers += 2
        self.failed_notifications += 1
        self.success["error"] += 1
        self.time_to_first_token.observe(now - request.decode_queued)
        self.request_time_per_output_token.observe(0.0)
        self.e2e_request_latency.observe(now - request.decode_queued)

    def collect(self, now: float) -> None:
        """Fill the histograms with everything up to now."""
        for request in self.prefill_finished:
            self._prefill_leg(request)
        self.prefill_finished.clear()
        later = []
        for request in self.first_tokens:
            if request.first_token > now:
                later.append(request)
            elif request.first_token >= 0.0:  # else it was lost in its first step
                self._first_token(request)
        self.first_tokens = later
        for request in self.decode_finished:
            self._decode_leg(request)
        self.decode_finished.clear()
        for request in self.transfers:
            self._transfer(request)
        self.transfers.clear()

    def _prefill_leg(self, request: Request) -> None:
        latency = request.prefill_end - request.prefill_queued
        computing = request.prefill_end - request.prefill_scheduled
        computed = request.prompt_tokens - request.cached_tokens
        self.generation_tokens += 1
        self.success["length"] += 1  # max_tokens is 1 on this leg
        self._prompt(request.prompt_tokens, request.cached_tokens, computed, 0)
        self.time_to_first_token.observe(latency)
        self.e2e_request_latency.observe(latency)
        self.request_time_per_output_token.observe(0.0)
        self.request_queue_time.observe(request.prefill_scheduled - request.prefill_queued)
        self.request_prefill_time.observe(computing)
        self.request_inference_time.observe(computing)
        self.request_decode_time.observe(0.0)
        self._request_sizes(request.prompt_tokens, 1, computed, 0)

    def _first_token(self, request: Request) -> None:
        self.time_to_first_token.observe(request.first_token - request.decode_queued)
        rest = request.prompt_tokens - request.decode_cached_tokens
        if request.transfer_end >= 0.0:
            self._prompt(request.prompt_tokens, request.decode_cached_tokens, 0, rest)
        else:
            self.generation_tokens += 1
            self._prompt(request.prompt_tokens, request.decode_cached_tokens, rest, 0)

    def _decode_leg(self, request: Request) -> None:
        answering = request.finish - request.first_token
        self.success["length" if request.stopped_by_length else "stop"] += 1
        self.e2e_request_latency.observe(request.finish - request.decode_queued)
        self.request_time_per_output_token.observe(answering / (request.output_tokens - 1) if request.output_tokens > 1 else 0.0)
        self.request_queue_time.observe(request.decode_scheduled - request.decode_queued)
        self.request_prefill_time.observe(request.first_token - request.decode_scheduled)
        self.request_decode_time.observe(answering)
        self.request_inference_time.observe(request.finish - request.decode_scheduled)
        computed = request.prompt_tokens - request.decode_cached_tokens  # vLLM counts transferred tokens as computed here
        self._request_sizes(request.prompt_tokens, request.output_tokens, computed, request.preemptions)

    def _prompt(self, prompt: int, cached: int, computed: int, transferred: int) -> None:
        by_source = self.prompt_tokens_by_source
        by_source["local_compute"] += computed
        by_source["local_cache_hit"] += cached
        by_source["external_kv_transfer"] += transferred
        self.prefix_cache_queries += prompt
        self.prefix_cache_hits += cached
        self.external_prefix_cache_queries += prompt - cached
        self.external_prefix_cache_hits += transferred

    def _request_sizes(self, prompt: int, output: int, computed: int, preemptions: int) -> None:
        self.request_prompt_tokens.observe(prompt)
        self.request_generation_tokens.observe(output)
        self.request_max_num_generation_tokens.observe(output)
        self.request_params_max_tokens.observe(output)
        self.request_prefill_kv_computed_tokens.observe(computed)
        self.request_num_preemptions.observe(preemptions)
        self.request_params_n.observe(1)

    def _transfer(self, request: Request) -> None:
        self.nixl_post_time.observe(POST_SECONDS)
        self.nixl_xfer_time.observe(max(0.0, request.transfer_end - request.transfer_start - POST_SECONDS))
        self.nixl_bytes_transferred.observe(request.transfer_bytes)
        self.nixl_num_descriptors.observe(max(1, request.transfer_bytes // self._block_bytes))
