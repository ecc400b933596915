"""The horizontal pod autoscaler on latency, one per phase: p95 TTFT for prefill, p95 TPOT for decode.

As Kubernetes documents it (Horizontal Pod Autoscaling, algorithm details): desired = ceil(current x metric / target), nothing
within a tolerance of 0.1, every 15 s; growth at most the larger of 100 % and four pods per 15 s; a shrink to the highest wish
of the last 300 s.
"""

from __future__ import annotations

import math
from collections import deque

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, value


class Stabiliser:
    """Shrinks only to the highest wish of a window."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._wishes: deque[tuple[float, int]] = deque()

    def settle(self, now: float, wish: int, current: int) -> int:
        """What to set. What it finds at first counts as wished for then."""
        if not self._wishes:
            self._wishes.append((now, current))
        self._wishes.append((now, wish))
        while self._wishes[0][0] < now - self._seconds:
            self._wishes.popleft()
        return max(wish, min(current, max(count for _, count in self._wishes)))


class LatencyHpa(CountingPolicy):
    """`target_share`: the metric's target as a share of the service's own; 1.0 by default, lower in the tuned variant."""

    interval_seconds = 15.0

    def __init__(self, name: str = "hpa-latency", *, target_share: float = 1.0, stabilisation_seconds: float = 300.0) -> None:
        super().__init__()
        self.name = name
        self._share = target_share
        self._stabilisers = {phase: Stabiliser(stabilisation_seconds) for phase in Phase}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        seen, targets = service.observation, service.given.targets
        ratios = {
            Phase.PREFILL: (value(seen.ttft_percentile_seconds), targets.ttft_seconds),
            Phase.DECODE: (value(seen.decode.latency_percentile_seconds), targets.tpot_seconds),
        }
        wanted = {}
        for phase, (latency, target) in ratios.items():
            current = service.asked(phase)
            wish = current
            if latency is not None:
                ratio = latency / (target * self._share)
                if abs(ratio - 1.0) > 0.1:
                    wish = math.ceil(max(1, service.ready(phase)) * ratio)
            wish = max(1, min(wish, max(2 * current, current + 4)))
            wanted[phase] = self._stabilisers[phase].settle(view.now, wish, current)
        return wanted[Phase.PREFILL], wanted[Phase.DECODE]


class UtilisationHpa(CountingPolicy):
    """The same autoscaler on GPU utilisation (busy time, as DCGM shows it), target 70 %: blind on decode, always busy."""

    interval_seconds = 15.0
    name = "hpa-utilisation"

    def __init__(self, target: float = 0.7) -> None:
        super().__init__()
        self._target = target
        self._busy: dict[Phase, deque[float]] = {phase: deque(maxlen=4) for phase in Phase}
        self._stabilisers = {phase: Stabiliser(300.0) for phase in Phase}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        wanted = {}
        for phase in Phase:
            self._busy[phase].append(service.gauges[phase].busy_share)
            ratio = sum(self._busy[phase]) / len(self._busy[phase]) / self._target
            current = service.asked(phase)
            wish = current if abs(ratio - 1.0) <= 0.1 else math.ceil(max(1, service.ready(phase)) * ratio)
            wish = max(1, min(wish, max(2 * current, current + 4)))
            wanted[phase] = self._stabilisers[phase].settle(view.now, wish, current)
        return wanted[Phase.PREFILL], wanted[Phase.DECODE]
