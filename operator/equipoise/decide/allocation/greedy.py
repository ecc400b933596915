"""Allocation by water-filling: always the phase that is worst off, always the cheapest replica that helps it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.allocation.fill import COVER_TOLERANCE, PhaseFill, ServiceFill
from equipoise.decide.allocation.scarcity import shadow_prices
from equipoise.decide.allocation.shortfall import shortfall
from equipoise.decide.allocation.space import PoolSpace
from equipoise.decide.allocation.types import Allocation, AllocationProblem, ServiceDemand, Shortfall
from equipoise.decide.types import VariantOption


def allocate(problem: AllocationProblem) -> Allocation:
    """Replicas for all services at once.

    1. Held replicas keep their places. 2. Every service gets its minimum, both phases together or none anew. 3. Priority by
    priority, the phase with the highest load (demand / capacity) gets the next replica until all are covered or nothing fits.
    For replicas of one kind this minimises the largest load (each step lowers the maximum, and loads fall convexly in the
    count), so a shortage is split best instead of starving one phase. 4. What is covered without a replica loses it.

    Work grows with the number of replicas placed, times the options of a phase.
    """
    spaces = {name: PoolSpace(nodes) for name, nodes in problem.pools.items()}
    shadow = shadow_prices(problem, {name: space.total_gpus for name, space in spaces.items()})
    order = sorted(problem.services, key=_rank)
    fills = [ServiceFill(service, spaces, shadow) for service in order]
    _find_slots(problem, {fill.demand.key: fill for fill in fills}, spaces)
    missing_held = _place_held(fills)
    for service in fills:
        _place_minimum(service)
    start = 0
    while start < len(fills):
        end = start
        while end < len(fills) and fills[end].demand.priority == fills[start].demand.priority:
            end += 1
        _water_fill(fills[start:end])
        start = end
    for service in fills:
        for fill in service.phases.values():
            _drop_redundant(service, fill)
    return _answer(fills, spaces, missing_held)


def _rank(service: ServiceDemand) -> tuple[int, float, ServiceKey]:
    return (-service.priority, service.created_seconds, service.key)


def _find_slots(problem: AllocationProblem, fills: Mapping[ServiceKey, ServiceFill], spaces: Mapping[str, PoolSpace]) -> None:
    """Where current replicas are, node by node."""
    for name, nodes in problem.pools.items():
        space = spaces[name]
        for node in sorted(nodes, key=lambda node: node.name, reverse=True):
            for variant, gpus in sorted(node.own_gpus.items()):
                fill = fills.get(variant.service)
                group = fill.groups.get((variant.pool, variant.shape)) if fill is not None else None
                if group is not None and fill is not None:
                    group.slots += [space.index[node.name]] * (gpus // fill.chunk(variant)[1])


def _place_held(fills: list[ServiceFill]) -> dict[tuple[ServiceKey, Phase], int]:
    """Replicas that this round may not change stay; how many of them have no room is returned."""
    missing: dict[tuple[ServiceKey, Phase], int] = {}
    for service in fills:
        for phase, fill in service.phases.items():
            if not (fill.demand.held or fill.demand.needed_tokens_per_second is None):
                continue
            options = {option.variant: option for option in fill.demand.options}
            for variant, count in sorted(fill.demand.current.items()):
                for done in range(count):
                    place = service.place(phase, variant, displace=False)
                    if place is None:
                        missing[service.demand.key, phase] = missing.get((service.demand.key, phase), 0) + count - done
                        break
                    service.hold(fill, variant, options.get(variant), place)
    return missing


def _place_minimum(service: ServiceFill) -> None:
    """Minimum replicas. A first replica of one phase without one of the other serves nothing: then neither is started anew."""
    before = {phase: fill.replicas for phase, fill in service.phases.items()}
    free = [fill for fill in service.phases.values() if not fill.demand.held]
    lacking = [fill for fill in free if fill.replicas == 0 and fill.demand.minimum > 0]
    failed = [fill for fill in lacking if not service.add_one(fill)]
    if failed:
        for phase, fill in service.phases.items():
            if fill in lacking and fill not in failed and before[phase] == 0 and not any(fill.demand.current.values()):
                option = next(option for option in fill.demand.options if fill.counts.get(option.variant))
                service.drop_one(fill, option)
                fill.alone = True
        return
    for fill in free:
        while fill.replicas < fill.demand.minimum and service.add_one(fill):
            pass


def _water_fill(services: list[ServiceFill]) -> None:
    heap: list[tuple[float, int, Phase]] = []
    for position, service in enumerate(services):
        for phase, fill in service.phases.items():
            if _may_grow(fill):
                heap.append((-fill.load, position, phase))
    heapq.heapify(heap)
    while heap:
        _, position, phase = heapq.heappop(heap)
        service = services[position]
        fill = service.phases[phase]
        if service.add_one(fill) and not fill.covered:
            heapq.heappush(heap, (-fill.load, position, phase))


def _may_grow(fill: PhaseFill) -> bool:
    return not (fill.demand.held or fill.demand.needed_tokens_per_second is None or fill.covered or fill.alone)


def _drop_redundant(service: ServiceFill, fill: PhaseFill) -> None:
    """Greedy covering overshoots: take out, dearest and least preferred first, what the rest covers as well."""
    if fill.demand.held or fill.demand.needed_tokens_per_second is None:
        return

    def dearness(option: VariantOption) -> tuple[int, float, Variant]:
        return (-option.preference, -option.price_usd_per_hour, option.variant)

    for option in sorted(fill.demand.options, key=dearness):
        rate = option.capacity.tokens_per_second
        while (
            fill.counts.get(option.variant, 0) > 0
            and fill.replicas > max(fill.demand.minimum, 1 if fill.needed > 0.0 else 0)
            and (fill.capacity - rate) * (1.0 + COVER_TOLERANCE) >= fill.needed
        ):
            service.drop_one(fill, option)


def _answer(
    fills: list[ServiceFill], spaces: Mapping[str, PoolSpace], missing_held: Mapping[tuple[ServiceKey, Phase], int]
) -> Allocation:
    replicas: dict[Variant, int] = {}
    placements: dict[Variant, tuple[str, ...]] = {}
    shortfalls: list[Shortfall] = []
    for service in fills:
        for phase, fill in service.phases.items():
            for variant, count in sorted(fill.counts.items()):
                if count:
                    replicas[variant] = count
                    names = spaces[variant.pool].names
                    placements[variant] = tuple("+".join(names[node] for node in place) for place in fill.places[variant])
            found = shortfall(service, fill, spaces, missing_held.get((service.demand.key, phase), 0))
            if found is not None:
                shortfalls.append(found)
    return Allocation(replicas, tuple(shortfalls), placements, float("nan"), "greedy")
