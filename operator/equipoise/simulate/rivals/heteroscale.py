"""HeteroScale (Taming the Chaos, arXiv 2508.19559, 2025): decode tokens per second alone scale both pools at a fixed ratio.

total = observed decode TPS / target TPS per instance; out when the ratio passes 1 + 0.1, in below 1 - 0.1; cooldowns of 180 s
out and 600 s in (from re-implementations; the paper gives none). The ratio comes from the load test at the traffic the
service was set up for: here the mean of the first minutes it sees. The latency safety net: 20 % more when p95 TPOT passes 1.2
x its target.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, value


class HeteroScale(CountingPolicy):
    """`theta`: the dead band; `use`: the share of a decode replica's capacity that is its target."""

    name = "heteroscale"
    interval_seconds = 15.0

    def __init__(
        self,
        *,
        theta: float = 0.1,
        use: float = 0.9,
        out_seconds: float = 180.0,
        in_seconds: float = 600.0,
        name: str = "heteroscale",
    ) -> None:
        super().__init__()
        self.name = name
        self._theta, self._use, self._out, self._in = theta, use, out_seconds, in_seconds
        self._ratio: float | None = None  # prefill replicas per decode replica
        self._per_replica = 1.0
        self._changed = -math.inf
        self._seen = 0.0

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        if traffic is None or view.now < 60.0:
            return None
        if self._ratio is None:
            profile = self.profile(view, service, traffic)
            if profile is None:
                return None
            prefill_need = traffic.requests_per_second * traffic.prompt_tokens / profile.prefill.tokens_per_second
            decode_need = traffic.requests_per_second * traffic.output_tokens / profile.decode.tokens_per_second
            self._ratio = prefill_need / max(decode_need, 1e-9)
            self._per_replica = profile.decode.tokens_per_second * self._use
        served = value(service.observation.decode.tokens_per_second) or 0.0
        decode = service.asked(Phase.DECODE)
        ratio = served / (self._per_replica * decode)
        tpot = value(service.observation.decode.latency_percentile_seconds)
        if tpot is not None and tpot > 1.2 * service.given.targets.tpot_seconds:
            ratio = max(ratio, 1.2)
        waited = view.now - self._changed
        if not ((ratio > 1.0 + self._theta and waited >= self._out) or (ratio < 1.0 - self._theta and waited >= self._in)):
            return None
        self._changed = view.now
        wanted = max(1, math.ceil(decode * ratio))
        return max(1, round(wanted * self._ratio)), wanted

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """Both or neither: the ratio stays."""
        if prefill + decode <= most:
            return prefill, decode
        share = self._ratio or 1.0
        decode = max(1, min(most - 1, round(most / (1.0 + share))))
        return most - decode, decode
