"""Everything that `equipoise plan` finds out, as one value: printed as tables, written as JSON, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from equipoise.api.identity import ServiceKey
from equipoise.cli.plan.advice import Advice, aggregation_advice
from equipoise.cli.plan.allocation import Plan, plan_services
from equipoise.cli.plan.frontier import Frontier, frontier
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.shapes import Ways, ways_to_serve
from equipoise.cli.plan.traffic import Traffic
from equipoise.decide.options import FleetView
from equipoise.decide.settings import Settings
from equipoise.fleet.types import Fleet


@dataclass(frozen=True, slots=True)
class Study:
    """The answers for all services of a plan."""

    fleet: Fleet
    services: tuple[Service, ...]
    traffic: Mapping[ServiceKey, Traffic]
    ways: Mapping[ServiceKey, Ways]
    plan: Plan
    frontiers: tuple[Frontier, ...]
    advice: tuple[Advice, ...]


def study(
    fleet: Fleet, services: Sequence[Service], traffic: Mapping[ServiceKey, Traffic], settings: Settings | None = None
) -> Study:
    """Shapes, allocation, frontier and advice. Pure: equal arguments give equal answers."""
    used = settings or Settings()
    view = FleetView(fleet)
    plan = plan_services(services, fleet, traffic, used)
    frontiers = [
        frontier(services, service.key, fleet, traffic, used)
        for service in services
        if traffic[service.key].requests_per_second is not None
    ]
    return Study(
        fleet=fleet,
        services=tuple(services),
        traffic=traffic,
        ways={service.key: ways_to_serve(service, view, traffic[service.key], used) for service in services},
        plan=plan,
        frontiers=tuple(frontiers),
        advice=tuple(aggregation_advice(services, fleet, traffic, plan.services, used)),
    )
