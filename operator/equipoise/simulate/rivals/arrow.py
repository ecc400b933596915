"""Arrow (arXiv 2505.11916, 2025), whose replicas change roles without a reload, and the planner of Narwhal, which carries it out.

Arrow: load is the ratio to the target. Prefill: prompt tokens in flight over what one TTFT target computes; decode: tokens that
run over the most that the TPOT target allows. A replica turns from prefill to decode when decode's load has been above 1.0 for
three looks, 10 s after the last such turn at the earliest; from decode to prefill when prefill's is, and decode's would be
below 0.5.
Narwhal (its repository's documentation, 2026): need = ceil(offered work / utilisation) per role, a role short by more than half
a replica takes at once, surplus turns after some confirmations; attainment below 0.9 forces one more to that role for five
intervals. Narwhal's own evaluation charges 300 s for a turn where roles are fixed; here such turns take what a start takes in
the world.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import ServiceView, View
from equipoise.simulate.rivals.counting import CountingPolicy, value

_CONFIRMATIONS = 3
_FORCED_INTERVALS = 5
_FORCED_ATTAINMENT = 0.9


class Arrow(CountingPolicy):
    """One replica at a time, never the last of a role. `expand` and `shrink`: loads from which it takes, to which it gives."""

    interval_seconds = 5.0
    flips = True

    def __init__(self, name: str = "arrow", *, expand: float = 1.0, shrink: float = 0.5, cooldown_seconds: float = 10.0) -> None:
        super().__init__()
        self.name = name
        self._expand, self._shrink, self._cooldown = expand, shrink, cooldown_seconds
        self._above = 0
        self._turned = -math.inf

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        profile = None if traffic is None else self.profile(view, service, traffic)
        prefill, decode = service.asked(Phase.PREFILL), service.asked(Phase.DECODE)
        if traffic is None or profile is None or service.ready(Phase.PREFILL) < prefill or service.ready(Phase.DECODE) < decode:
            return None
        room = service.given.targets.ttft_seconds * profile.prefill_peak(traffic)
        prefill_load = service.gauges[Phase.PREFILL].queued_prompt_tokens / (prefill * room)
        resident = service.gauges[Phase.DECODE].kv_tokens_used
        most = profile.decode.max_batch * (traffic.prompt_tokens + traffic.output_tokens / 2.0)
        decode_load = resident / (decode * most)
        self._above = self._above + 1 if decode_load > self._expand else 0
        if self._above >= _CONFIRMATIONS and prefill > 1 and view.now - self._turned >= self._cooldown:
            self._above, self._turned = 0, view.now
            return prefill - 1, decode + 1
        if prefill_load > self._expand and decode > 1 and resident / ((decode - 1) * most) < self._shrink:
            return prefill + 1, decode - 1
        return None

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """A turn keeps the sum."""
        return prefill, decode


class Narwhal(CountingPolicy):
    """Keeps all replicas and shares them out by need. `utilisation`: of a replica's capacity that is planned with."""

    interval_seconds = 15.0
    flips = True

    def __init__(self, name: str = "narwhal", *, utilisation: float = 0.8, flips: bool = True) -> None:
        super().__init__()
        self.name, self.flips, self._utilisation = name, flips, utilisation
        self._confirmed = 0
        self._forced: dict[Phase, int] = dict.fromkeys(Phase, 0)

    def counts(self, view: View, service: ServiceView) -> tuple[int, int] | None:
        """See CountingPolicy."""
        traffic = self.traffic(service)
        profile = None if traffic is None else self.profile(view, service, traffic)
        prefill, decode = service.asked(Phase.PREFILL), service.asked(Phase.DECODE)
        if traffic is None or profile is None or service.ready(Phase.PREFILL) < prefill or service.ready(Phase.DECODE) < decode:
            return None
        busy = traffic.requests_per_second * traffic.prompt_tokens / profile.prefill_peak(traffic)
        peak = profile.decode.tokens_per_second / profile.decode.utilisation
        need = {
            Phase.PREFILL: busy / self._utilisation,
            Phase.DECODE: traffic.requests_per_second * traffic.output_tokens / (peak * self._utilisation),
        }
        seen = service.observation
        for phase, signal in ((Phase.PREFILL, seen.ttft_attainment), (Phase.DECODE, seen.decode.attainment)):
            attained = value(signal)
            short = attained is not None and attained < _FORCED_ATTAINMENT
            self._forced[phase] = _FORCED_INTERVALS if short else max(0, self._forced[phase] - 1)
        goal = self._shared(need, prefill + decode)
        if goal == (prefill, decode):
            self._confirmed = 0
            return None
        self._confirmed += 1
        urgent = need[Phase.PREFILL] > prefill + 0.5 or need[Phase.DECODE] > decode + 0.5
        if not urgent and self._confirmed < _CONFIRMATIONS:
            return None
        self._confirmed = 0
        return goal

    def _shared(self, need: dict[Phase, float], total: int) -> tuple[int, int]:
        """All replicas in proportion to the whole replicas that each role needs, at least one each."""
        whole = {
            phase: math.ceil(amount) + (1 if self._forced[phase] and not self._forced[phase.other] else 0)
            for phase, amount in need.items()
        }
        sum_of_needs = max(1, sum(whole.values()))
        prefill = round(total * whole[Phase.PREFILL] / sum_of_needs)
        prefill = max(1, min(total - 1, prefill))
        return prefill, total - prefill

    def fit(self, prefill: int, decode: int, most: int, service: ServiceView) -> tuple[int, int]:
        """Turns keep the sum."""
        return prefill, decode
