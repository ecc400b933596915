"""Kthena's ratio repair: replicas follow load, and the ratio of prefill to decode is kept inside bounds by adding only.

After Kthena's description ("Kthena Autoscaler" and its prefill-decode groups, Volcano project, 2026): a metric per instance
against its target gives the count of a homogeneous target (here: running and waiting requests per replica), with a tolerance of
0.1 and a shrink to the highest wish of 300 s; then the ratio of the roles is brought back between its least and its most by
adding replicas of the role that is short. Nothing is taken from the other role for it.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy
from equipoise.simulate.rivals.hpa import Stabiliser

_TOLERANCE = 0.1


class KthenaRatio(CountingPolicy):
    """`requests_per_replica`: the metric's target; `least`, `most`: prefill replicas per decode replica."""

    interval_seconds = 15.0

    def __init__(
        self,
        name: str = "kthena-ratio",
        *,
        requests_per_replica: tuple[float, float] = (4.0, 64.0),
        least: float = 0.5,
        most: float = 2.0,
    ) -> None:
        super().__init__()
        self.name = name
        self._targets = dict(zip(Phase, requests_per_replica, strict=True))
        self._least, self._most = least, most
        self._stabilisers = {phase: Stabiliser(300.0) for phase in Phase}

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        wanted = {}
        for phase in Phase:
            gauges, current = service.gauges[phase], service.asked(phase)
            ratio = (gauges.running_requests + gauges.waiting_requests) / (max(1, service.ready(phase)) * self._targets[phase])
            wish = current if abs(ratio - 1.0) <= _TOLERANCE else max(1, math.ceil(max(1, service.ready(phase)) * ratio))
            wanted[phase] = self._stabilisers[phase].settle(view.now, wish, current)
        return self.repaired(wanted[Phase.PREFILL], wanted[Phase.DECODE])

    def repaired(self, prefill: int, decode: int) -> tuple[int, int]:
        """The counts with the ratio inside its bounds again, by adding only."""
        return max(prefill, math.ceil(decode * self._least)), max(decode, math.ceil(prefill / self._most))
