"""What tighter and looser targets cost: the cheapest plan for a range of TTFT and TPOT targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from equipoise.api.identity import Phase, ServiceKey
from equipoise.cli.plan.allocation import Plan, plan_services
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.traffic import Traffic
from equipoise.decide.settings import Settings
from equipoise.fleet.types import Fleet
from equipoise.perf.types import Targets

TTFT_FACTORS: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
TPOT_FACTORS: Final = (0.4, 0.6, 1.0, 1.5, 2.0)
_TIME_LIMIT_SECONDS: Final = 0.3  # for each of the 30 plans: a frontier is for orientation


@dataclass(frozen=True, slots=True)
class Point:
    """The cheapest plan at one pair of targets. `usd_per_hour` None: the fleet cannot do it, `reason` says why.

    `pools` names the pools of prefill and of decode.
    """

    ttft_seconds: float
    tpot_seconds: float
    usd_per_hour: float | None
    gpus: int
    pools: Mapping[Phase, tuple[str, ...]]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Frontier:
    """All points of one service; the costs are those of all services together, the others' targets unchanged."""

    key: ServiceKey
    ttft_seconds: tuple[float, ...]
    tpot_seconds: tuple[float, ...]
    points: tuple[Point, ...]

    def at(self, ttft_seconds: float, tpot_seconds: float) -> Point:
        """The point of these targets."""
        return next(p for p in self.points if (p.ttft_seconds, p.tpot_seconds) == (ttft_seconds, tpot_seconds))


def frontier(
    services: Sequence[Service], key: ServiceKey, fleet: Fleet, traffic: Mapping[ServiceKey, Traffic], settings: Settings
) -> Frontier:
    """The frontier of one service around its own targets, on the same fleet, with the other services beside it."""
    own = next(service for service in services if service.key == key).policy.targets
    ttfts = tuple(round(own.ttft_seconds * factor, 6) for factor in TTFT_FACTORS)
    tpots = tuple(round(own.tpot_seconds * factor, 6) for factor in TPOT_FACTORS)
    asked = plan_services(services, fleet, traffic, settings, time_limit_seconds=_TIME_LIMIT_SECONDS)
    short = {service.key for service in asked.services if not service.covered} - {key}
    points = []
    for ttft in ttfts:
        for tpot in tpots:
            targets = replace(own, ttft_seconds=ttft, tpot_seconds=tpot)
            plan = plan_services(
                [_with_targets(service, targets) if service.key == key else service for service in services],
                fleet,
                traffic,
                settings,
                time_limit_seconds=_TIME_LIMIT_SECONDS,
            )
            points.append(_point(plan, key, targets, short))
    return Frontier(key, ttfts, tpots, tuple(_cheapest(point, points) for point in points))


def _cheapest(point: Point, points: Sequence[Point]) -> Point:
    """A plan that keeps tighter targets keeps these: it stands here too where it costs less.

    It may: sizing lets decode run up to its target, also for the first token, so a looser TPOT can make prefill dearer.
    """
    tighter = [
        other
        for other in points
        if other.usd_per_hour is not None
        and other.ttft_seconds <= point.ttft_seconds
        and other.tpot_seconds <= point.tpot_seconds
    ]
    if not tighter:
        return point
    best = min(tighter, key=lambda other: (other.usd_per_hour or 0.0, other != point, -other.ttft_seconds, -other.tpot_seconds))
    return replace(best, ttft_seconds=point.ttft_seconds, tpot_seconds=point.tpot_seconds)


def _with_targets(service: Service, targets: Targets) -> Service:
    return replace(service, policy=replace(service.policy, targets=targets))


def _point(plan: Plan, key: ServiceKey, targets: Targets, short: Set[ServiceKey]) -> Point:
    """`short` are other services that lack capacity whatever this one does: they are not held against it."""
    mine = next(service for service in plan.services if service.key == key)
    pools = {
        phase: tuple(sorted({variant.option.variant.pool for variant in entry.variants})) for phase, entry in mine.phases.items()
    }
    reasons = [entry.infeasible.message for entry in mine.phases.values() if entry.infeasible is not None]
    reasons += [item.message for service in plan.services if service.key not in short for item in service.shortfalls]
    # Long prompts may miss the target on any of these devices, however many there are.
    best = min(entry.attainable_share for entry in mine.phases.values())
    if not reasons and best < targets.percentile / 100.0 - 0.005:
        reasons = [f"at best {best:.0%} of requests meet the TTFT target: prompts are too long for it"]
    return Point(
        targets.ttft_seconds, targets.tpot_seconds, None if reasons else plan.usd_per_hour, plan.gpus, pools, "; ".join(reasons)
    )
