"""llm-d's token-aware autoscaling with KEDA (llm-d guide "Autoscaling with token metrics", experimental, 2026).

Prefill: ceil(uncached prompt tokens in flight / speed / threshold seconds), where the threshold is the TTFT target less the
time of one prompt, times 0.65 for a p95 target. Decode: ceil(sum of KV usage / 0.8). KEDA hands both to a horizontal pod
autoscaler: shrinks after 300 s.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, value
from equipoise.simulate.rivals.hpa import Stabiliser


class TokenKeda(CountingPolicy):
    """`kv_share`: KV usage per decode replica that is aimed at."""

    interval_seconds = 15.0

    def __init__(self, name: str = "keda-tokens", *, kv_share: float = 0.8, percentile_factor: float = 0.65) -> None:
        super().__init__()
        self.name = name
        self._kv_share, self._factor = kv_share, percentile_factor
        self._stabilisers = {phase: Stabiliser(300.0) for phase in Phase}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        profile = None if traffic is None else self.profile(view, service, traffic)
        if traffic is None or profile is None:
            return None
        speed = profile.prefill_peak(traffic)
        threshold = (service.given.targets.ttft_seconds - traffic.prompt_tokens / speed) * self._factor
        in_flight = service.gauges[Phase.PREFILL].queued_prompt_tokens
        prefill = math.ceil(in_flight / speed / threshold) if threshold > 0.0 else service.asked(Phase.PREFILL)
        decode = math.ceil(service.gauges[Phase.DECODE].kv_usage_sum / self._kv_share)
        return (
            self._stabilisers[Phase.PREFILL].settle(view.now, max(1, prefill), service.asked(Phase.PREFILL)),
            self._stabilisers[Phase.DECODE].settle(view.now, max(1, decode), service.asked(Phase.DECODE)),
        )


class SloKeda(CountingPolicy):
    """KEDA on SLO attainment: a replica more for a phase below the percentile, one less after ten good minutes.

    After the pattern of KServe's and llm-d's SLO-driven examples (2026): a trigger per objective, threshold at the objective.
    """

    interval_seconds = 30.0

    def __init__(self, good_seconds: float = 600.0, *, name: str = "keda-slo") -> None:
        super().__init__()
        self.name = name
        self._good_seconds = good_seconds
        self._good_since: dict[Phase, float] = {}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        seen, share = service.observation, service.given.targets.percentile / 100.0
        result = {}
        for phase, signal in ((Phase.PREFILL, seen.ttft_attainment), (Phase.DECODE, seen.decode.attainment)):
            count, attained = service.asked(phase), value(signal)
            if attained is not None and attained < share:
                self._good_since.pop(phase, None)
                count += 1
            elif view.now - self._good_since.setdefault(phase, view.now) > self._good_seconds:
                self._good_since[phase] = view.now
                count -= 1
            result[phase] = count
        return result[Phase.PREFILL], result[Phase.DECODE]
