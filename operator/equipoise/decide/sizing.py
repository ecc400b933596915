"""From demand to the capacity a phase needs."""

from __future__ import annotations

from equipoise.decide.demand import Demand
from equipoise.decide.settings import Settings


def needed_tokens_per_second(demand: Demand, trim: float, settings: Settings) -> float:
    """Capacity needed: demand × headroom × trim.

    Nothing is counted twice: room for queueing at the target percentile is in the capacity of a replica (`perf`), the forecast
    error is in the demand's upper quantile, what neither knows is in the trim, and `headroom` is what an operator wants beyond
    that (1.0 by default). The queue is left out: it is drained by flips, or gone before a new replica could help.
    """
    return max(demand.forecast, demand.now) * settings.headroom * max(1.0, trim)
