"""The allocation problem in the words of the program: units to size, choices to count, nodes to fill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.fill import COVER_TOLERANCE, FLIP_SHARE
from equipoise.decide.allocation.space import chunks_of
from equipoise.decide.allocation.types import AllocationProblem, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption

GPU_USD: Final = 1e-4  # per GPU and hour, so that where prices are unknown (0) the fewest GPUs are taken
ORDER_USD: Final = 1e-6  # per replica and place in the order of options: equal prices are told apart the same way every time
_EPSILON: Final = 1e-9


@dataclass(slots=True)
class Choice:
    """Replicas of one option of one unit."""

    index: int
    unit: int
    option: VariantOption
    variant: Variant
    rate: float  # tokens per second of one replica
    price: float  # USD per hour of one replica, with the terms that only break ties
    gpus: int
    chunks: int
    width: int  # GPUs per chunk, on one node
    current: int = 0
    kin: int = 0  # replicas of the other phase, same pool and shape, that may flip here
    start: float = 0.0  # USD for a replica that has to start
    flip: float = 0.0  # USD for a replica that changes phase
    most: int = 0  # never more than this


@dataclass(slots=True)
class Unit:
    """One phase that the program sizes."""

    index: int
    service: int
    phase: Phase
    demand: PhaseDemand
    needed: float  # tokens per second that count as covered, the tolerance taken off
    minimum: int  # replicas beyond `base`
    maximum: int | None
    base: int  # replicas that stay whatever is decided, since the demand is unknown
    choices: list[Choice] = field(default_factory=list)
    pair: int | None = None  # the other phase: neither is started from nothing alone

    def share(self, choice: Choice) -> float:
        """What one replica covers of the need."""
        return choice.rate / self.needed


@dataclass(slots=True)
class Node:
    """One node: GPUs to plan with after what is fixed, and the chunks of plannable replicas on it."""

    name: str
    gpus: int
    open: bool
    slots: dict[Variant, int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """Replicas that may take one another's place: one pool and shape of a service, both phases where flips are possible."""

    choices: list[Choice]
    current: int
    width: int
    chunks: int
    variants: tuple[Variant, ...]
    pool: str
    slots: dict[int, int] = field(default_factory=dict)  # chunks that run now, by node position


@dataclass(slots=True)
class Fixed:
    """Replicas that no plan may change, with their places (node positions per replica)."""

    places: dict[Variant, list[tuple[int, ...]]] = field(default_factory=dict)
    missing: dict[tuple[ServiceKey, Phase], int] = field(default_factory=dict)


class Layout:
    """Everything the program needs, in an order that does not depend on the order of the input."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        self.services: list[ServiceDemand] = sorted(problem.services, key=lambda s: (-s.priority, s.created_seconds, s.key))
        self.pools: dict[str, list[Node]] = {}
        self.largest: dict[str, int] = {}
        for name, nodes in sorted(problem.pools.items()):
            ordered = sorted(nodes, key=lambda node: node.name)
            self.pools[name] = [Node(node.name, _room(node.gpus, node.own_gpus, node.open), node.open) for node in ordered]
            self.largest[name] = max((node.gpus for node in self.pools[name]), default=0)
        self.fixed = Fixed()
        self.fixed_gpus = [0] * len(self.services)
        self.fixed_cost = [0.0] * len(self.services)
        self._place_fixed()
        self.roomiest = {name: max((node.gpus for node in nodes), default=0) for name, nodes in self.pools.items()}
        self.units: list[Unit] = []
        self.choices: list[Choice] = []
        self.groups: list[Group] = []
        self.by_service: list[list[Unit]] = [[] for _ in self.services]
        for position, service in enumerate(self.services):
            self._add_units(position, service)
        self.widths: dict[str, set[int]] = {}
        for choice in self.choices:
            self.widths.setdefault(choice.variant.pool, set()).add(choice.width)
        self.by_variant = {choice.variant: choice for choice in self.choices}
        self._add_slots()

    def priority(self, unit: Unit) -> int:
        """Priority of the unit's service."""
        return self.services[unit.service].priority

    def chunk(self, variant: Variant) -> tuple[int, int]:
        """(chunks, GPUs per chunk) of one replica."""
        return chunks_of(variant.shape, self.largest.get(variant.pool, 0))

    def _place_fixed(self) -> None:
        """Held replicas, and those whose demand is unknown, keep their nodes; those that have none yet take free GPUs."""
        slots: dict[Variant, list[int]] = {}
        for name, nodes in self.problem.pools.items():
            for place, node in enumerate(sorted(nodes, key=lambda node: node.name)):
                for variant, gpus in sorted(node.own_gpus.items()):
                    if variant.pool == name:
                        slots.setdefault(variant, []).extend([place] * (gpus // self.chunk(variant)[1]))
        loose: list[tuple[int, Variant]] = []
        for position, service in enumerate(self.services):
            for _phase, entry in sorted(service.phases.items()):
                if not _fixed(entry):
                    continue
                for variant, count in sorted(entry.current.items()):
                    chunks, width = self.chunk(variant)
                    room = self.pools.get(variant.pool, [])
                    own = slots.get(variant, [])
                    for _ in range(count):
                        where = tuple(own[:chunks])
                        if len(where) == chunks and _take(room, where, width):
                            del own[:chunks]
                            self._fix(position, entry, variant, where)
                        else:
                            loose.append((position, variant))
        held = {name: self._held_elsewhere(name) for name in self.pools}
        for position, variant in loose:
            service, entry = self.services[position], self.services[position].phases[variant.phase]
            chunks, width = self.chunk(variant)
            found = _free_places(self.pools.get(variant.pool, []), held.get(variant.pool, []), chunks, width)
            if found is None:
                key = (service.key, variant.phase)
                self.fixed.missing[key] = self.fixed.missing.get(key, 0) + 1
                continue
            _take(self.pools[variant.pool], found, width)
            self._fix(position, entry, variant, found)

    def _held_elsewhere(self, pool: str) -> list[int]:
        """GPUs per node that plannable replicas hold: nobody's to take for a replica that may not displace."""
        fixed = set(self.fixed.places)
        ordered = sorted(self.problem.pools[pool], key=lambda node: node.name)
        return [sum(gpus for variant, gpus in node.own_gpus.items() if variant not in fixed) for node in ordered]

    def _fix(self, position: int, entry: PhaseDemand, variant: Variant, place: tuple[int, ...]) -> None:
        self.fixed.places.setdefault(variant, []).append(place)
        self.fixed_gpus[position] += variant.shape.gpus_per_replica
        price = next((option.price_usd_per_hour for option in entry.options if option.variant == variant), 0.0)
        self.fixed_cost[position] += price

    def _add_units(self, position: int, service: ServiceDemand) -> None:
        for phase, entry in sorted(service.phases.items()):
            if entry.held or not entry.options:
                continue
            base = sum(len(self.fixed.places.get(variant, ())) for variant in entry.current) if _fixed(entry) else 0
            needed = (entry.needed_tokens_per_second or 0.0) / (1.0 + COVER_TOLERANCE)
            maximum = None if entry.maximum is None else max(0, entry.maximum - base)
            minimum = max(0, entry.minimum - base)
            unit = Unit(len(self.units), position, phase, entry, needed if needed > _EPSILON else 0.0, minimum, maximum, base)
            self.units.append(unit)
            self.by_service[position].append(unit)
            self._add_choices(service, unit)
        units = self.by_service[position]
        for unit in units:
            current = sum(unit.demand.current.values())
            partner = service.phases.get(unit.phase.other)
            if current == 0 and unit.base == 0 and partner is not None and partner.minimum > 0 and not partner.held:
                other = next((entry for entry in units if entry is not unit), None)
                if other is not None and other.base == 0:
                    unit.pair = other.index
        shared: dict[tuple[str, Shape, Phase | None], list[Choice]] = {}
        for unit in units:
            for choice in unit.choices:
                key = (choice.variant.pool, choice.variant.shape, None if service.flips else unit.phase)
                shared.setdefault(key, []).append(choice)
        for (pool, shape, only), members in sorted(shared.items(), key=lambda item: _text(item[0])):
            phases = [phase for phase, entry in service.phases.items() if not _fixed(entry) and only in (None, phase)]
            variants = tuple(Variant(service.key, phase, pool, shape) for phase in sorted(phases))
            current = sum(service.phases[variant.phase].current.get(variant, 0) for variant in variants)
            self.groups.append(Group(members, current, members[0].width, members[0].chunks, variants, pool))

    def _add_choices(self, service: ServiceDemand, unit: Unit) -> None:
        entry = unit.demand
        unknown = _fixed(entry)
        options = sorted(entry.options, key=lambda option: (option.preference, option.variant.pool, option.variant.shape))
        ordered = any(option.preference for option in options)
        dearest = max(option.price_usd_per_hour / option.capacity.tokens_per_second for option in options)
        other = service.phases.get(unit.phase.other)
        for place, option in enumerate(options):
            variant, rate = option.variant, option.capacity.tokens_per_second
            chunks, width = self.chunk(variant)
            if width > self.roomiest.get(variant.pool, 0):
                continue
            price = option.price_usd_per_hour + GPU_USD * variant.shape.gpus_per_replica + ORDER_USD * place
            choice = Choice(
                len(self.choices), unit.index, option, variant, rate, price, variant.shape.gpus_per_replica, chunks, width
            )
            choice.current = 0 if unknown else entry.current.get(variant, 0)
            if service.flips and other is not None and not _fixed(other):
                choice.kin = other.current.get(variant.with_phase(unit.phase.other), 0)
            # An ordered list of pools goes before price, but not before replicas that run: moving those gains nothing.
            rank = option.preference * dearest * rate if ordered else 0.0
            choice.start = service.change_price_usd + rank
            choice.flip = service.change_price_usd * FLIP_SHARE
            most = max(math.ceil(unit.needed / rate - _EPSILON), unit.minimum, 1 if unit.needed > 0.0 else 0)
            choice.most = most if unit.maximum is None else min(most, unit.maximum)
            unit.choices.append(choice)
            self.choices.append(choice)

    def _add_slots(self) -> None:
        wanted = {variant: group for group in self.groups for variant in group.variants}
        for name, nodes in self.pools.items():
            ordered = sorted(self.problem.pools[name], key=lambda node: node.name)
            for place, (given, node) in enumerate(zip(ordered, nodes, strict=True)):
                for variant, gpus in sorted(given.own_gpus.items()):
                    group = wanted.get(variant)
                    if group is not None and variant.pool == name and (count := gpus // group.width):
                        node.slots[variant] = count
                        group.slots[place] = group.slots.get(place, 0) + count


@lru_cache(maxsize=1024)
def _text(place: tuple[str, Shape, Phase | None]) -> str:
    """What groups are ordered by; few texts, many services."""
    return str(place)


def _fixed(entry: PhaseDemand) -> bool:
    return entry.held or entry.needed_tokens_per_second is None


def _room(gpus: int, own: Mapping[Variant, int], is_open: bool) -> int:
    """What plans may fill: on a closed node only what its replicas hold already."""
    return max(0, gpus) if is_open else sum(own.values())


def _take(nodes: list[Node], places: tuple[int, ...], width: int) -> bool:
    for done, place in enumerate(places):
        if nodes[place].gpus < width:
            for taken in places[:done]:
                nodes[taken].gpus += width
            return False
        nodes[place].gpus -= width
    return True


def _free_places(nodes: list[Node], held: list[int], chunks: int, width: int) -> tuple[int, ...] | None:
    """Best fit on GPUs that nothing holds."""
    used: dict[int, int] = {}
    places: list[int] = []
    for _ in range(chunks):
        fits = [
            (left, place)
            for place, node in enumerate(nodes)
            if node.open and (left := node.gpus - held[place] - used.get(place, 0)) >= width
        ]
        if not fits:
            return None
        place = min(fits)[1]
        used[place] = used.get(place, 0) + width
        places.append(place)
    return tuple(places)
