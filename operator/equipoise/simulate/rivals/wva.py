"""llm-d's workload variant autoscaler: spare capacity of replicas, one step at a time, both roles allocated as a pair.

After its documentation ("Saturation analyzer" and "Capacity scaling configuration", llm-d workload-variant-autoscaler,
2025-2026): a replica is saturated at 80 % KV usage or 5 waiting requests. When the replicas that are not saturated have on
average less than 0.1 of KV or less than 3 queue places to spare (or all are saturated), one more is asked for, unless one is
still starting; one less when the load spread over the others leaves those margins. Every 30 s, on the highest values of the
last minute. Roles are variants that are granted together: a growth of one role that the pool cannot hold beside what the other
wants is not granted at all.
"""

from __future__ import annotations

from collections import deque

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy


class PairedWva(CountingPolicy):
    """The tuned variant leaves more to spare."""

    interval_seconds = 30.0

    def __init__(
        self,
        name: str = "wva",
        *,
        kv_threshold: float = 0.8,
        queue_threshold: float = 5.0,
        kv_spare: float = 0.1,
        queue_spare: float = 3.0,
    ) -> None:
        super().__init__()
        self.name = name
        self._thresholds, self._spares = (kv_threshold, queue_threshold), (kv_spare, queue_spare)
        self._seen: dict[Phase, deque[tuple[float, float]]] = {phase: deque(maxlen=2) for phase in Phase}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        result = {}
        for phase in Phase:
            gauges, ready, asked = service.gauges[phase], service.ready(phase), service.asked(phase)
            self._seen[phase].append((gauges.kv_usage_sum, float(gauges.waiting_requests)))
            if ready < 1:
                result[phase] = asked
                continue
            load = [max(values) for values in zip(*self._seen[phase], strict=True)]
            result[phase] = asked
            if self._short(load, ready):
                result[phase] = asked + 1 if ready >= asked else asked
            elif ready >= asked > 1 and not self._short(load, ready - 1):
                result[phase] = asked - 1
        return result[Phase.PREFILL], result[Phase.DECODE]

    def _short(self, load: list[float], replicas: int) -> bool:
        """Whether so many replicas with this load between them have too little to spare."""
        return any(
            threshold - total / replicas < spare
            for total, threshold, spare in zip(load, self._thresholds, self._spares, strict=True)
        )

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """Both, or what there is: a pair is granted as a whole."""
        if prefill + decode <= most:
            return prefill, decode
        return service.asked(Phase.PREFILL), service.asked(Phase.DECODE)
