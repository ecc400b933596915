"""NVIDIA Dynamo's SLA planner, throughput mode (Dynamo documentation, "Planner design").

Every adjustment interval (60 s): the next interval's requests, prompt and answer lengths are predicted (constant: as the last
one). prefill = ceil(requests x prompt / interval x min(1, TTFT correction) / profiled throughput); decode = ceil(requests x
answer / interval / the throughput profiled at the ITL target over the ITL correction). A correction is observed / profiled
latency. A GPU budget scales both down in proportion.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, Profile, Traffic, value


class DynamoSla(CountingPolicy):
    """`use`: the share of the profiled throughput that is planned with; 1.0 as published, lower in the tuned variant."""

    def __init__(self, name: str = "dynamo-sla", *, interval_seconds: float = 60.0, use: float = 1.0) -> None:
        super().__init__()
        self.name = name
        self.interval_seconds = interval_seconds
        self._use = use

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        profile = None if traffic is None else self.profile(view, service, traffic)
        if traffic is None or profile is None:
            return None
        seen, targets = service.observation, service.given.targets
        length = traffic.prompt_tokens
        ttft = value(seen.ttft_mean_seconds)
        expected = profile.times.prefill_seconds(length, length * length)
        prefill_correction = 1.0 if ttft is None else ttft / expected
        load = traffic.requests_per_second * length * min(1.0, prefill_correction)
        prefill = math.ceil(load / (profile.prefill_peak(traffic) * self._use))
        itl = value(seen.decode.latency_mean_seconds)
        running = value(seen.decode.running_requests)
        correction = 1.0
        if itl is not None and running is not None and service.asked(Phase.DECODE) > 0:
            batch = running / service.asked(Phase.DECODE)
            context = batch * (length + traffic.output_tokens / 2.0)
            correction = itl / max(1e-9, profile.times.decode_step_seconds(batch, context))
        throughput = _decode_throughput(profile, traffic, targets.tpot_seconds / max(correction, 1e-3))
        decode = math.ceil(traffic.requests_per_second * traffic.output_tokens / (throughput * self._use))
        return prefill, decode

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """The GPU budget: both in proportion, at least one each."""
        if prefill + decode <= most:
            return prefill, decode
        prefill = max(1, min(most - 1, int(prefill * most / (prefill + decode))))
        return prefill, most - prefill


def _decode_throughput(profile: Profile, traffic: Traffic, itl_seconds: float) -> float:
    """Tokens per second of one replica at the largest batch whose step stays inside, memory and 256 sequences permitting."""
    context = traffic.prompt_tokens + traffic.output_tokens / 2.0
    per_sequence = profile.times.decode_per_sequence + profile.times.decode_per_context_token * context
    batch = (itl_seconds - profile.times.decode_constant) / per_sequence
    batch = max(1.0, min(batch, 256.0, profile.decode.kv_tokens / max(1.0, traffic.prompt_tokens + traffic.output_tokens)))
    return batch / profile.times.decode_step_seconds(batch, batch * context)
