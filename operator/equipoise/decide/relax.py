"""Which target what there is would meet: the other way out of a shortage."""

from __future__ import annotations

from functools import lru_cache

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide.options import GRID, FleetView
from equipoise.decide.performance import Performance
from equipoise.perf.capacity import LARGEST_GROUP
from equipoise.perf.types import ModelFacts, ReplicaCapacity, Targets, Workload

_STEPS = (1.25, 1.5, 2.0, 3.0, 5.0)


def relaxed_target_seconds(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    targets: Targets,
    workload: Workload,
    phase: Phase,
    counts: dict[Variant, int],
    needed: float,
    shares_arrivals: bool,
) -> float | None:
    """The least relaxed TTFT (prefill) or TPOT (decode) that these replicas meet at this need; None beyond five times."""
    places = tuple(sorted(((v.pool, v.shape, n) for v, n in counts.items() if n > 0), key=repr))
    return (
        _relaxed(
            fleet, performance, model, targets, workload.rounded(GRID), phase, places, float(f"{needed:.2g}"), shares_arrivals
        )
        if places
        else None
    )


@lru_cache(maxsize=4096)
def _relaxed(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    targets: Targets,
    workload: Workload,
    phase: Phase,
    places: tuple[tuple[str, Shape, int], ...],
    needed: float,
    shares_arrivals: bool,
) -> float | None:
    for step in _STEPS:
        ttft = targets.ttft_seconds * (step if phase is Phase.PREFILL else 1.0)
        tpot = targets.tpot_seconds * (step if phase is Phase.DECODE else 1.0)
        relaxed = Targets(ttft, tpot, targets.percentile)
        total = 0.0
        sharing = min(LARGEST_GROUP, sum(count for _, _, count in places)) if shares_arrivals else 1
        for name, shape, count in places:
            pool = fleet.pools.get(name)
            if pool is None:
                continue
            capacity = performance.capacity(phase, model, pool, shape, workload, relaxed, sharing=sharing)
            if isinstance(capacity, ReplicaCapacity):
                total += capacity.tokens_per_second * count
        if total >= needed:
            return ttft if phase is Phase.PREFILL else tpot
    return None
