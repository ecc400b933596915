"""Phases apart or together: what one pool of replicas that do both would cost, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.cli.plan.aggregated import aggregated_capacity
from equipoise.cli.plan.allocation import PlannedService, spaces_of
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.shapes import ENGINES
from equipoise.cli.plan.solver import allocate
from equipoise.cli.plan.traffic import Traffic
from equipoise.decide.allocation.types import AllocationProblem, PhaseDemand, ServiceDemand
from equipoise.decide.options import GRID, FleetView
from equipoise.decide.performance import at_need
from equipoise.decide.settings import Settings
from equipoise.decide.types import VariantOption
from equipoise.fleet.types import Fleet
from equipoise.perf.capacity import LARGEST_GROUP
from equipoise.perf.types import Refusal, ReplicaCapacity

CLEAR_DIFFERENCE: Final = 0.10  # the two ways are modelled to about this; less is no difference
SMALL_MODEL_PARAMETERS: Final = 10e9
FEW_REPLICAS: Final = 4
LONG_ANSWERS: Final = 3.0  # output over uncached prompt tokens
TTFT_OVER_TPOT: Final = (
    20.0  # TaiChi (arXiv 2508.01989): at 5 s and 250 ms aggregation won 97 to 42 %, at 16 s and 60 ms lost 7 to 98 %
)


class Verdict(StrEnum):
    """What the comparison says."""

    APART = "Apart"
    AGGREGATE = "Aggregate"
    EITHER = "Either"
    NEITHER = "Neither"


@dataclass(frozen=True, slots=True)
class AggregatedReplicas:
    """Replicas that do both phases, of one kind."""

    pool: str
    shape: str
    replicas: int
    gpus: int
    usd_per_hour: float
    requests_per_second: float
    binds: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The comparison for one service. `signs` are what the literature names as favouring one pool, where it holds here."""

    key: ServiceKey
    verdict: Verdict
    reason: str
    apart_usd_per_hour: float | None
    aggregated_usd_per_hour: float | None
    replicas: tuple[AggregatedReplicas, ...]
    signs: tuple[str, ...]


def aggregation_advice(
    services: Sequence[Service],
    fleet: Fleet,
    traffic: Mapping[ServiceKey, Traffic],
    planned: Sequence[PlannedService],
    settings: Settings,
) -> list[Advice]:
    """For each service with a demand: its cheapest aggregated replicas on the same fleet, all services at once, and a verdict."""
    view = FleetView(fleet)
    offers: dict[ServiceKey, tuple[VariantOption, ...]] = {}
    binds: dict[Variant, str] = {}
    refusals: dict[ServiceKey, list[str]] = {}
    for service in services:
        rate = _rate(traffic[service.key], settings)
        offers[service.key] = _options(service, view, traffic[service.key], rate, binds, refusals.setdefault(service.key, []))
    answer = allocate(
        AllocationProblem(
            pools=spaces_of(fleet),
            services=tuple(_demand(service, offers[service.key], traffic[service.key], settings) for service in services),
        )
    )
    # The message begins with what prefill lacks in tokens, which here are requests of both phases.
    short = {item.service: item.message.partition(": ")[2] for item in answer.shortfalls}
    result = []
    for service, apart in zip(services, planned, strict=True):
        if traffic[service.key].requests_per_second is None:
            continue
        replicas = tuple(
            AggregatedReplicas(
                option.variant.pool,
                str(option.variant.shape),
                count,
                count * option.variant.shape.gpus_per_replica,
                count * option.price_usd_per_hour,
                count * option.capacity.tokens_per_second,
                binds[option.variant],
            )
            for option in offers[service.key]
            if (count := answer.replicas.get(option.variant, 0))
        )
        why_not = short.get(service.key, "") if offers[service.key] else "; ".join(refusals[service.key]) or "no pool"
        result.append(_verdict(service, apart, replicas, why_not, _signs(service, traffic[service.key], apart)))
    return result


def _options(
    service: Service, view: FleetView, traffic: Traffic, needed: float, binds: dict[Variant, str], refusals: list[str]
) -> tuple[VariantOption, ...]:
    """One option for each pool and shape. Its "tokens" are requests: the work of both phases comes with each."""
    found = []
    policy, workload = service.policy, traffic.workload.rounded(GRID)
    largest = LARGEST_GROUP if policy.shares_arrivals else 1
    wished = {name for phase in Phase for name in policy.phases[phase].pools}
    for name, pool in view.pools.items():
        if wished and name not in wished:
            continue
        shapes = ENGINES.shapes(policy.model, pool, view.largest_node[name])
        if isinstance(shapes, Refusal):
            refusals.append(f"{name}: {shapes.message}")
            continue
        missed = ""
        fits = False
        for shape in shapes:
            group: list[ReplicaCapacity] = []
            for sharing in range(1, largest + 1):
                capacity = aggregated_capacity(policy.model, pool.device, shape, workload, policy.targets, sharing)
                if isinstance(capacity, Refusal):
                    missed = f"{name}: {capacity.message}"
                    break
                group.append(
                    ReplicaCapacity(Phase.PREFILL, capacity.requests_per_second, 1, 0, 0.0, capacity.binds, "aggregated")
                )
            if len(group) < largest:
                continue
            fits = True
            variant = Variant(service.key, Phase.PREFILL, name, shape)
            price = pool.price_usd_per_gpu_hour * shape.gpus_per_replica
            option = at_need({variant: VariantOption(variant, group[0], price, 0.0, group=tuple(group))}, needed)[variant]
            binds[variant] = option.capacity.binds
            found.append(option)
        if not fits:
            refusals.append(missed)
    return tuple(found)


def _rate(traffic: Traffic, settings: Settings) -> float:
    return (traffic.requests_per_second or 0.0) * settings.headroom


def _demand(service: Service, options: tuple[VariantOption, ...], traffic: Traffic, settings: Settings) -> ServiceDemand:
    policy = service.policy
    minimum = max(bounds.minimum for bounds in policy.phases.values())
    demand = PhaseDemand(Phase.PREFILL, _rate(traffic, settings), minimum, None, options, {})
    return ServiceDemand(
        key=service.key,
        priority=policy.priority,
        created_seconds=policy.created_seconds,
        phases={Phase.PREFILL: demand},
        max_gpus=policy.max_gpus,
        max_cost_usd_per_hour=policy.max_cost_usd_per_hour,
        flips=False,
    )


def _verdict(
    service: Service, apart: PlannedService, replicas: tuple[AggregatedReplicas, ...], why_not: str, signs: tuple[str, ...]
) -> Advice:
    cost = apart.usd_per_hour if apart.covered else None
    other = None if why_not else sum(entry.usd_per_hour for entry in replicas)
    base = Advice(service.key, Verdict.NEITHER, "", cost, other, replicas, signs)
    if cost is None and other is None:
        return replace(base, reason=f"this fleet cannot carry the traffic either way; together: {why_not}")
    if cost is None:
        return replace(
            base, verdict=Verdict.AGGREGATE, reason="the traffic fits with both phases together, and not with phases apart"
        )
    if other is None:
        return replace(base, verdict=Verdict.APART, reason=f"both phases together do not carry it: {why_not}")
    difference = other / cost - 1.0 if cost > 0.0 else 0.0
    compared = f"{other:,.2f} USD/h together against {cost:,.2f} apart ({difference:+.0%})"
    if difference < -CLEAR_DIFFERENCE:
        return replace(base, verdict=Verdict.AGGREGATE, reason=compared)
    if difference > CLEAR_DIFFERENCE:
        return replace(base, verdict=Verdict.APART, reason=compared)
    if apart.replicas < FEW_REPLICAS:
        text = f"{compared}: no clear difference, and {apart.replicas} replicas leave nothing to move between phases"
        return replace(base, verdict=Verdict.AGGREGATE, reason=text)
    return replace(
        base, verdict=Verdict.EITHER, reason=f"{compared}: no clear difference; only apart can the split follow the traffic"
    )


def _signs(service: Service, traffic: Traffic, apart: PlannedService) -> tuple[str, ...]:
    """When the literature favours one pool (BeyondBuzz arXiv 2506.05508, TaiChi 2508.01989, 2601.08833): as far as it holds."""
    model, targets, workload = service.policy.model, service.policy.targets, traffic.workload
    signs = []
    if targets.ttft_seconds <= TTFT_OVER_TPOT * targets.tpot_seconds:
        signs.append(f"TTFT is tight beside TPOT ({targets.ttft_seconds / targets.tpot_seconds:.0f} times it, at most 20)")
    if model.parameters < SMALL_MODEL_PARAMETERS:
        signs.append(f"the model is small ({model.parameters / 1e9:.1f} billion parameters, below 10)")
    length = workload.mean_output_tokens / max(1.0, workload.uncached_prompt_tokens)
    if length >= LONG_ANSWERS:
        signs.append(f"answers are long ({length:.1f} times the uncached prompt)")
    if 0 < apart.replicas < FEW_REPLICAS:
        signs.append(f"there are few replicas ({apart.replicas}, below 4)")
    return tuple(signs)
