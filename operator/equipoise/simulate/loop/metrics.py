"""The part of vLLM's metrics that the operator reads, and nothing else: half the cost of a whole metrics page."""

from __future__ import annotations

from equipoise.simulate.engine.metrics.histogram import Histogram
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.request import Request


class ReadMetrics(ReplicaMetrics):
    """As `ReplicaMetrics`; histograms that `observe` has no instrument for stay empty."""

    def steps(self, steps: int, size: int, first: float, slope: float, fresh: int, prompt_tokens: int, prompts: int) -> None:
        """See ReplicaMetrics."""
        if size:
            self.generation_tokens += size * steps
            self.inter_token_latency.observe_steps(steps, size, first, slope, fresh)

    def _prefill_leg(self, request: Request) -> None:
        queued, scheduled, end = request.prefill_queued, request.prefill_scheduled, request.prefill_end
        prompt, cached = request.prompt_tokens, request.cached_tokens
        self.generation_tokens += 1
        self.success["length"] += 1
        by_source = self.prompt_tokens_by_source
        by_source["local_compute"] += prompt - cached
        by_source["local_cache_hit"] += cached
        self.time_to_first_token.observe(end - queued)
        _sum(self.request_queue_time, scheduled - queued)
        _sum(self.request_prefill_time, end - scheduled)
        _sum(self.request_prompt_tokens, prompt)

    def _first_token(self, request: Request) -> None:
        self.time_to_first_token.observe(request.first_token - request.decode_queued)
        rest = request.prompt_tokens - request.decode_cached_tokens
        by_source = self.prompt_tokens_by_source
        by_source["local_cache_hit"] += request.decode_cached_tokens
        if request.transfer_end >= 0.0:
            by_source["external_kv_transfer"] += rest
        else:
            self.generation_tokens += 1
            by_source["local_compute"] += rest

    def _decode_leg(self, request: Request) -> None:
        output = request.output_tokens
        self.success["length" if request.stopped_by_length else "stop"] += 1
        answering = request.finish - request.first_token
        self.request_time_per_output_token.observe(answering / (output - 1) if output > 1 else 0.0)
        _sum(self.request_queue_time, request.decode_scheduled - request.decode_queued)
        _sum(self.request_generation_tokens, output)

    def _transfer(self, request: Request) -> None:
        pass


def _sum(histogram: Histogram, value: float) -> None:
    histogram.total += value
    histogram.count += 1
