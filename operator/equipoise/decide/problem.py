"""From the state of a round to the allocation problem."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.decide.allocation.types import AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.pending import blocked_until
from equipoise.decide.settings import Settings
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import CapacityMode
from equipoise.fleet.types import Fleet, NodeCapacity


def allocation_problem(
    fleet: Fleet, services: Iterable[ServiceState], now_seconds: float, settings: Settings, *, advice: bool = False
) -> AllocationProblem:
    """All services on all pools. With `advice`, services in mode Recommend take part as if they might change."""
    pools = {pool.name: tuple(_node(node) for node in pool.nodes) for pool in fleet.pools}
    demands = tuple(_service(service, now_seconds, settings, advice) for service in services if not service.service.deleting)
    return AllocationProblem(pools, demands)


def _node(node: NodeCapacity) -> NodeSpace:
    return NodeSpace(node.name, max(0, node.allocatable_gpus - node.foreign_gpus), node.own_gpus, node.usable)


def _service(service: ServiceState, now_seconds: float, settings: Settings, advice: bool) -> ServiceDemand:
    given = service.service
    frozen = given.mode is CapacityMode.OFF or (given.mode is CapacityMode.RECOMMEND and not advice)
    limits = [limit for limit in (given.max_gpus, given.max_quota_gpus) if limit is not None]
    prices = [option.price_usd_per_hour for phase in service.phases.values() for option in phase.options.values()]
    return ServiceDemand(
        key=given.key,
        priority=given.priority,
        created_seconds=given.created_seconds,
        phases={phase: _phase(service, state, frozen, now_seconds) for phase, state in service.phases.items()},
        max_gpus=min(limits) if limits else None,
        max_cost_usd_per_hour=given.max_cost_usd_per_hour,
        change_price_usd=settings.change_price_hours * (sum(prices) / len(prices)) if prices else 0.0,
        flips=given.flip_supported,
    )


def _phase(service: ServiceState, state: PhaseState, frozen: bool, now_seconds: float) -> PhaseDemand:
    options = tuple(option for option in state.options.values() if blocked_until(service.extra, option.variant) <= now_seconds)
    fixed = state.fixed_count
    useless = _serves_nothing(service)
    return PhaseDemand(
        phase=state.phase,
        needed_tokens_per_second=0.0 if fixed is not None or useless else state.needed,
        minimum=0 if useless else state.floor,
        maximum=state.policy.maximum if fixed is None else fixed,
        options=options,
        current=state.next,
        held=frozen,
    )


def _serves_nothing(service: ServiceState) -> bool:
    """Nothing runs yet, and one phase can be served nowhere: the other alone would hold GPUs and answer nobody."""
    return service.infeasible is not None and not any(state.replicas() for state in service.phases.values())
