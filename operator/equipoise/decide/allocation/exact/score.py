"""What a plan is worth: a list of figures, compared from the first to the last, each the lower the better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from equipoise.api.identity import Phase, Variant
from equipoise.decide.allocation.exact.layout import Choice, Group, Layout, Unit

SEGMENTS: Final = 8
STEEPER: Final = 2.0  # each eighth of the demand that is missing counts this many times more than the one before
NOTHING: Final = 10.0  # a phase without any replica, against one replica below the minimum
COVERED: Final = 1e-9
TIE: Final = 0.01  # of two equal claims the older service's is met: the last in order weighs this much less than the first


@dataclass(frozen=True, slots=True)
class Score:
    """Minimums missing and demand missing, per priority from the highest down, then cost in USD per hour with changes."""

    minimums: tuple[float, ...]
    demands: tuple[float, ...]
    cost: float

    def worse_than(self, other: Score, tolerance: float = 1e-6) -> bool:
        """Whether the first figure that differs by more than `tolerance` (relative, at least absolute) is higher here."""
        mine, theirs = (*self.minimums, *self.demands, self.cost), (*other.minimums, *other.demands, other.cost)
        for left, right in zip(mine, theirs, strict=True):
            if abs(left - right) > tolerance * max(1.0, abs(left), abs(right)):
                return left > right
        return False


# Penalty per unit of relative shortfall, eighth by eighth. Convex and steep: of two phases (or services) the one that lacks more
# is helped first, which keeps the larger utilisation low, as filling by water does, and yet stays linear in the program.
_SLOPES: Final = tuple(STEEPER**step for step in range(SEGMENTS))


def penalty(missing_share: float) -> float:
    """What a relative shortfall (0..1) counts."""
    total, left = 0.0, missing_share - COVERED
    for slope in _SLOPES:
        if left <= 0.0:
            break
        part = min(left, 1.0 / SEGMENTS)
        total += slope * part
        left -= part
    return total


def priorities(layout: Layout) -> list[int]:
    """All priorities, the highest first."""
    return sorted({service.priority for service in layout.services}, reverse=True)


def score(layout: Layout, counts: Mapping[Variant, int]) -> Score:
    """Figures of a plan."""
    numbers = _by_index(layout, counts)
    levels = {priority: place for place, priority in enumerate(priorities(layout))}
    minimums, demands = [0.0] * len(levels), [0.0] * len(levels)
    cost = 0.0
    for unit in layout.units:
        level = levels[layout.priority(unit)]
        replicas, capacity, price = totals(unit, numbers)
        share = weight(layout, unit)
        minimums[level] += share * minimum_missing(unit, replicas)
        demands[level] += share * demand_missing(unit, capacity)
        cost += price
    changes = 0.0
    for group in layout.groups:
        wanted = [numbers[choice.index] for choice in group.choices]
        if any(wanted):
            changes += change_cost(group, wanted)
    return Score(tuple(minimums), tuple(demands), cost + changes)


def _by_index(layout: Layout, counts: Mapping[Variant, int]) -> list[int]:
    """Replicas per choice: a plan names few of them, so each is looked up once, and the rest is none."""
    numbers = [0] * len(layout.choices)
    for variant, count in counts.items():
        choice = layout.by_variant.get(variant)
        if choice is not None:
            numbers[choice.index] = count
    return numbers


def weight(layout: Layout, unit: Unit) -> float:
    """What a shortfall of this unit counts against the same of another."""
    return 1.0 - TIE * (unit.service + 0.5 * (unit.phase is Phase.DECODE)) / len(layout.services)


def totals(unit: Unit, numbers: Sequence[int]) -> tuple[int, float, float]:
    """(replicas, tokens per second, USD per hour) of a unit, from replicas by index of choice."""
    replicas, capacity, price = 0, 0.0, 0.0
    for choice in unit.choices:
        if count := numbers[choice.index]:
            replicas += count
            capacity += count * choice.rate
            price += count * choice.price
    return replicas, capacity, price


def minimum_missing(unit: Unit, replicas: int) -> float:
    """Replicas below the minimum; none at all counts for more."""
    missing = max(0, unit.minimum - replicas)
    return missing + (NOTHING if missing and replicas + unit.base == 0 else 0.0)


def demand_missing(unit: Unit, capacity: float) -> float:
    """What the relative shortfall of a unit counts."""
    return penalty(1.0 - capacity / unit.needed) if unit.needed > 0.0 else 0.0


def change_cost(group: Group, counts: Sequence[int]) -> float:
    """USD for replicas that start or flip, given the counts of the group's choices in their order."""
    grown = [max(0, count - choice.current) for choice, count in zip(group.choices, counts, strict=True)]
    started = max(0, sum(counts) - group.current)
    flipped = sum(grown) - started
    return flipped * group.choices[0].flip + started * start_price(group.choices)


def start_price(choices: Sequence[Choice]) -> float:
    """USD for one more replica in a group that has to start."""
    return max(choice.start for choice in choices)


def within_limits(layout: Layout, counts: Mapping[Variant, int]) -> bool:
    """Whether a plan keeps every maximum and budget, and starts no phase alone. Room on nodes is not looked at."""
    numbers = _by_index(layout, counts)
    sizes = [totals(unit, numbers)[0] for unit in layout.units]
    for unit, replicas in zip(layout.units, sizes, strict=True):
        if unit.maximum is not None and replicas > unit.maximum:
            return False
        if unit.pair is not None and replicas and not sizes[unit.pair]:
            return False
    for position, service in enumerate(layout.services):
        if service.max_gpus is None and service.max_cost_usd_per_hour is None:
            continue
        gpus, cost = 0, 0.0
        for unit in layout.by_service[position]:
            for choice in unit.choices:
                gpus += choice.gpus * numbers[choice.index]
                cost += choice.option.price_usd_per_hour * numbers[choice.index]
        if service.max_gpus is not None and gpus > max(0, service.max_gpus - layout.fixed_gpus[position]):
            return False
        most = service.max_cost_usd_per_hour
        if most is not None and cost > max(0.0, most - layout.fixed_cost[position]) + 1e-9:
            return False
    return True
