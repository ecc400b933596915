"""From counts to an Allocation: places that prove it, what is still missing, and why."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.nodes import Packing
from equipoise.decide.allocation.exact.placing import Placement, place
from equipoise.decide.allocation.fill import PhaseFill, ServiceFill
from equipoise.decide.allocation.shortfall import shortfall
from equipoise.decide.allocation.space import PoolSpace
from equipoise.decide.allocation.types import Allocation, NodeSpace, Shortfall

_TAKEN = Variant(ServiceKey("", ""), Phase.PREFILL, "", Shape())  # stands for everything that a plan has put on a node


class Filled:
    """A plan on its nodes, and what is left there."""

    def __init__(self, layout: Layout, counts: Mapping[Variant, int], packing: Packing | None = None) -> None:
        self.layout = layout
        self.placement = place(layout, counts, packing)
        self.spaces = _left(layout, self.placement)
        self.fills = [ServiceFill(service, self.spaces, {}) for service in layout.services]
        self.lost = dict(self.placement.failed)
        placed: dict[tuple[ServiceKey, Phase], list[Variant]] = {}
        for variant in {**layout.fixed.places, **self.placement.places}:
            placed.setdefault((variant.service, variant.phase), []).append(variant)
        for fill in self.fills:
            self._put(fill, placed)
        self.short = [fill for fill in self.fills if any(_lacks(phase) for phase in fill.phases.values())]

    def counts(self) -> dict[Variant, int]:
        """Replicas that the program may choose, as they are now."""
        fixed = self.layout.fixed.places
        return {
            variant: left
            for fill in self.fills
            for phase in fill.phases.values()
            for variant, count in phase.counts.items()
            if count and (left := count - len(fixed.get(variant, ()))) > 0
        }

    def top_up(self) -> None:
        """Give phases that lack something what is left: minimums first, then the highest load; and note why no more comes."""
        for service in self.short:
            _start(service)
        heap = [
            (-service.demand.priority, -fill.load, position, phase)
            for position, service in enumerate(self.short)
            for phase, fill in service.phases.items()
            if not fill.covered and not fill.demand.held and not _alone(service, fill)
        ]
        heapq.heapify(heap)
        while heap:
            priority, _, position, phase = heapq.heappop(heap)
            service = self.short[position]
            fill = service.phases[phase]
            if service.add_one(fill) and not fill.covered:
                heapq.heappush(heap, (priority, -fill.load, position, phase))

    def allocation(self, gap: float, method: str) -> Allocation:
        """The answer, with every shortfall as a sentence."""
        replicas: dict[Variant, int] = {}
        places: dict[Variant, tuple[str, ...]] = {}
        shortfalls: list[Shortfall] = []
        for service in self.fills:
            for phase, fill in service.phases.items():
                for variant, count in sorted(fill.counts.items()):
                    if count:
                        names = self.spaces[variant.pool].names
                        replicas[variant] = count
                        places[variant] = tuple("+".join(names[node] for node in entry) for entry in fill.places[variant])
                missing = self.layout.fixed.missing.get((service.demand.key, phase), 0)
                found = shortfall(service, fill, self.spaces, missing)
                if found is not None and (missing or not fill.demand.held):
                    shortfalls.append(found)
        return Allocation(replicas, tuple(shortfalls), places, gap, method)

    def _put(self, service: ServiceFill, placed: Mapping[tuple[ServiceKey, Phase], list[Variant]]) -> None:
        for phase, fill in service.phases.items():
            for variant in sorted(placed.get((service.demand.key, phase), ())):
                option = next((option for option in fill.demand.options if option.variant == variant), None)
                entries = (*self.layout.fixed.places.get(variant, ()), *self.placement.places.get(variant, ()))
                for entry in entries:
                    service.hold(fill, variant, option, entry)
                group = service.groups.get((variant.pool, variant.shape))
                if group is not None and entries:
                    group.current[phase] = max(0, group.current.get(phase, 0) - len(entries))


def _start(service: ServiceFill) -> None:
    """Minimums. A first replica is not started where the other phase has no room for its own; both sides say so."""
    free = [fill for fill in service.phases.values() if not fill.demand.held]
    lacking = [fill for fill in free if fill.replicas == 0 and fill.demand.minimum > 0]
    failed = [fill for fill in lacking if not service.add_one(fill)]
    for fill in free:
        if failed and fill in lacking and fill not in failed and not any(fill.demand.current.values()):
            option = next(option for option in fill.demand.options if fill.counts.get(option.variant))
            service.drop_one(fill, option)
            fill.alone = True
    for fill in free:
        while not failed and fill.replicas < fill.demand.minimum and service.add_one(fill):
            pass


def _alone(service: ServiceFill, fill: PhaseFill) -> bool:
    """Whether a first replica would serve nothing, since the other phase has none and gets none."""
    other = service.phases.get(fill.demand.phase.other)
    if other is not None and other.demand.minimum > 0 and not other.demand.held and other.demand.options:
        fill.alone = fill.alone or not (fill.replicas or other.replicas or any(fill.demand.current.values()))
    return fill.alone


def _lacks(fill: PhaseFill) -> bool:
    return not fill.covered or fill.replicas < fill.demand.minimum


def _left(layout: Layout, placement: Placement) -> dict[str, PoolSpace]:
    """The pools with everything taken that the plan and what is fixed hold."""
    spaces = {}
    for pool, given in layout.problem.pools.items():
        ordered = sorted(given, key=lambda node: node.name)
        nodes, taken = [], []
        for node, left in zip(ordered, placement.left[pool], strict=True):
            room = node.gpus if node.open else sum(node.own_gpus.values())
            used = max(0, room) - left
            taken.append(used)
            nodes.append(NodeSpace(node.name, node.gpus, {_TAKEN: used} if used else {}, node.open))
        space = PoolSpace(nodes)
        for position, used in enumerate(taken):
            if used:
                space.keep(position, used)
        spaces[pool] = space
    return spaces
