"""The cheapest allocation, by the allocation function that the operator itself calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.shapes import options_at
from equipoise.cli.plan.solver import allocate
from equipoise.cli.plan.traffic import Traffic, needed
from equipoise.decide.allocation.types import Allocation, AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand, Shortfall
from equipoise.decide.options import FleetView, PhaseOptions, infeasible
from equipoise.decide.settings import Settings
from equipoise.decide.types import Reason, Scaling, VariantOption
from equipoise.fleet.types import Fleet


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """Replicas of one variant in the plan."""

    option: VariantOption
    replicas: int
    nodes: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """GPUs they hold."""
        return self.replicas * self.option.variant.shape.gpus_per_replica

    @property
    def usd_per_hour(self) -> float:
        """What they cost."""
        return self.replicas * self.option.price_usd_per_hour

    @property
    def tokens_per_second(self) -> float:
        """What they sustain inside the targets."""
        return self.replicas * self.option.capacity.tokens_per_second


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """One phase in the plan. `needed_tokens_per_second` None: no demand was given."""

    phase: Phase
    needed_tokens_per_second: float | None
    variants: tuple[PlannedVariant, ...]
    infeasible: Reason | None = None

    @property
    def capacity_tokens_per_second(self) -> float:
        """Of all replicas."""
        return sum(variant.tokens_per_second for variant in self.variants)

    @property
    def utilisation(self) -> float | None:
        """Demand over capacity; 1.0 is as full as the targets allow. None without a demand or without a replica."""
        capacity = self.capacity_tokens_per_second
        return None if self.needed_tokens_per_second is None or capacity <= 0.0 else self.needed_tokens_per_second / capacity

    @property
    def attainable_share(self) -> float:
        """Share of requests that meet the target at best: long prompts may miss it even on an idle replica."""
        return min((variant.option.capacity.attainable_share for variant in self.variants), default=1.0)


@dataclass(frozen=True, slots=True)
class PlannedService:
    """One service in the plan."""

    key: ServiceKey
    phases: Mapping[Phase, PlannedPhase]
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def variants(self) -> tuple[PlannedVariant, ...]:
        """Of both phases."""
        return tuple(variant for phase in self.phases.values() for variant in phase.variants)

    @property
    def replicas(self) -> int:
        """Of both phases."""
        return sum(variant.replicas for variant in self.variants)

    @property
    def gpus(self) -> int:
        """Of both phases."""
        return sum(variant.gpus for variant in self.variants)

    @property
    def usd_per_hour(self) -> float:
        """Of both phases."""
        return sum(variant.usd_per_hour for variant in self.variants)

    @property
    def covered(self) -> bool:
        """Whether nothing is missing."""
        return not self.shortfalls and not any(phase.infeasible for phase in self.phases.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for all services. `gap`: proven distance from the cheapest, NaN where the method proves nothing."""

    services: tuple[PlannedService, ...]
    method: str
    gap: float

    @property
    def gpus(self) -> int:
        """Of all services."""
        return sum(service.gpus for service in self.services)

    @property
    def usd_per_hour(self) -> float:
        """Of all services."""
        return sum(service.usd_per_hour for service in self.services)

    @property
    def covered(self) -> bool:
        """Whether every service gets what it needs."""
        return all(service.covered for service in self.services)

    def gpus_by_pool(self) -> dict[str, int]:
        """GPUs that the plan holds of each pool."""
        result: dict[str, int] = {}
        for service in self.services:
            for variant in service.variants:
                pool = variant.option.variant.pool
                result[pool] = result.get(pool, 0) + variant.gpus
        return result


def plan_services(
    services: Sequence[Service],
    fleet: Fleet,
    traffic: Mapping[ServiceKey, Traffic],
    settings: Settings,
    *,
    time_limit_seconds: float = 1.0,
) -> Plan:
    """The cheapest replicas that cover every service's traffic on this fleet, as the operator would place them from nothing.

    A running operator keeps what runs where that is nearly as good, since each change has a price there; here changes cost
    nothing.
    """
    view = FleetView(fleet)
    offers = {service.key: options_at(service, view, traffic[service.key], settings) for service in services}
    problem = AllocationProblem(
        pools=spaces_of(fleet),
        services=tuple(_demand(service, offers[service.key], traffic[service.key], settings) for service in services),
        time_limit_seconds=time_limit_seconds,
    )
    answer = allocate(problem)
    planned = tuple(_planned(service, offers[service.key], traffic[service.key], answer, settings) for service in services)
    return Plan(planned, answer.method, answer.gap)


def spaces_of(fleet: Fleet) -> dict[str, tuple[NodeSpace, ...]]:
    """What the plan may use of each node: all but what others hold. Replicas of the planned services may be moved."""
    return {
        pool.name: tuple(
            NodeSpace(node.name, max(0, node.allocatable_gpus - node.foreign_gpus), open=node.usable) for node in pool.nodes
        )
        for pool in fleet.pools
    }


def _demand(service: Service, offers: Mapping[Phase, PhaseOptions], traffic: Traffic, settings: Settings) -> ServiceDemand:
    policy = service.policy
    phases = {}
    for phase, bounds in policy.phases.items():
        fixed = None if bounds.scaling is Scaling.AUTO else bounds.minimum
        phases[phase] = PhaseDemand(
            phase=phase,
            needed_tokens_per_second=0.0 if fixed is not None else needed(traffic, phase, settings) or 0.0,
            minimum=bounds.minimum if fixed is None else fixed,
            maximum=bounds.maximum if fixed is None else fixed,
            options=offers[phase].options,
            current={},
        )
    return ServiceDemand(
        key=service.key,
        priority=policy.priority,
        created_seconds=policy.created_seconds,
        phases=phases,
        max_gpus=policy.max_gpus,
        max_cost_usd_per_hour=policy.max_cost_usd_per_hour,
        flips=policy.flip_supported,
    )


def _planned(
    service: Service, offers: Mapping[Phase, PhaseOptions], traffic: Traffic, answer: Allocation, settings: Settings
) -> PlannedService:
    phases = {}
    for phase, found in offers.items():
        options = {option.variant: option for option in found.options}
        variants = tuple(
            PlannedVariant(options[variant], count, tuple(answer.placements.get(variant, ())))
            for variant, count in sorted(_of(answer, service.key, phase).items())
        )
        why = None if found.options else infeasible(phase, service.policy.phases[phase], found.refusals)
        phases[phase] = PlannedPhase(phase, needed(traffic, phase, settings), variants, why)
    shortfalls = tuple(item for item in answer.shortfalls if item.service == service.key)
    return PlannedService(service.key, phases, shortfalls)


def _of(answer: Allocation, key: ServiceKey, phase: Phase) -> dict[Variant, int]:
    return {
        variant: count
        for variant, count in answer.replicas.items()
        if variant.service == key and variant.phase is phase and count > 0
    }


def is_proven(gap: float) -> bool:
    """Whether the allocation is known to be the cheapest, within one in ten thousand."""
    return not math.isnan(gap) and gap <= 1e-4
