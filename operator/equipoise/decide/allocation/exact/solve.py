"""One plan for all services and pools, question by question: minimums, demand, cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from equipoise.api.identity import Variant
from equipoise.decide.allocation import greedy
from equipoise.decide.allocation.exact.answer import Filled
from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.nodes import Packing
from equipoise.decide.allocation.exact.patterns import valued
from equipoise.decide.allocation.exact.prices import find_prices
from equipoise.decide.allocation.exact.program import solve_program
from equipoise.decide.allocation.exact.repair import repaired
from equipoise.decide.allocation.exact.score import Score, priorities, score, within_limits
from equipoise.decide.allocation.exact.solver import SolverError
from equipoise.decide.allocation.exact.stage import COST_AS_TIE, Stage, shortage
from equipoise.decide.allocation.exact.tables import Tables
from equipoise.decide.allocation.types import Allocation, AllocationProblem

EXACT_GAP: Final = 1e-6
GOOD_GAP: Final = 2e-3
SHORT_PATTERNS: Final = 50_000.0
SHORT_PRICE_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class _Effort:
    """How much work a problem of a size is worth: counted in steps, so that it is the same on every machine."""

    units: int  # up to which it holds
    gap: float  # good enough
    price_steps: int
    patterns: tuple[int, ...]  # in the program, one after the other: a better plan leaves fewer that matter
    nodes: int  # of the search tree


# The gap of prices and repair shrinks as units become many, while the program becomes too large: so it is for the small ones.
_EFFORTS: Final = (
    _Effort(8, EXACT_GAP, 30, (400, 4_000), 5_000),
    _Effort(60, EXACT_GAP, 10, (300,), 60),
    _Effort(400, GOOD_GAP, 8, (600,), 1),
    _Effort(1 << 30, GOOD_GAP, 5, (), 0),
)


def allocate(problem: AllocationProblem) -> Allocation:
    """Replicas for all services at once."""
    layout = Layout(problem)
    best = _Best(layout, greedy.allocate(problem))
    if not layout.choices:
        best.gaps.append(0.0)  # nothing to choose
        return best.allocation()
    if problem.time_limit_seconds <= 0.0:
        return best.allocation()
    best.offer({choice.variant: choice.current for choice in layout.choices if choice.current}, "current")
    tables = Tables(layout)
    levels = len(priorities(layout))
    for level in range(levels):
        if best.score.minimums[level] > 0.0:
            _improve(tables, best, "minimum", level)
    for level in range(levels):
        if best.score.demands[level] > 0.0:
            _improve(tables, best, "demand", level)
    _improve(tables, best, "cost", 0)
    return best.allocation()


class _Best:
    """The best plan so far that can be placed, and how far from the best possible it can be."""

    def __init__(self, layout: Layout, first: Allocation) -> None:
        self.layout = layout
        self.first: Allocation | None = first
        self.counts = _free_counts(layout, first.replicas)
        self.score = score(layout, self.counts)
        self.filled: Filled | None = None
        self.method, self.gaps = first.method, [0.0]
        self.seconds = layout.problem.time_limit_seconds
        self.failure = ""  # of the solver: then plans come without it
        if not within_limits(layout, self.counts):
            self.score = Score(self.score.minimums, self.score.demands, math.inf)
            self.offer({}, "nothing")

    def offer(self, counts: Mapping[Variant, int], method: str, packing: Packing | None = None) -> bool:
        """Take a plan if it can be placed and is better."""
        if not within_limits(self.layout, counts) or not self.score.worse_than(score(self.layout, counts)):
            return False
        filled = _settle(self.layout, counts, packing)
        counts = filled.counts()
        found = score(self.layout, counts)
        if not self.score.worse_than(found):
            return False
        self.first, self.filled, self.counts, self.score, self.method = None, filled, counts, found, method
        return True

    def allocation(self) -> Allocation:
        gap = max(self.gaps) if len(self.gaps) > 1 else math.nan
        filled = self.filled or Filled(self.layout, self.counts)
        if self.first is not None and filled.lost:
            return replace(self.first, method=self._how())
        filled.top_up()
        return filled.allocation(gap, self._how())

    def _how(self) -> str:
        return f"{self.method} ({self.failure})" if self.failure else self.method


def _improve(tables: Tables, best: _Best, what: str, level: int) -> None:
    """Answer one question as well as can be, and note how well."""
    layout = tables.layout
    stage = _stage(tables, best, what, level)
    start = tables.counts(_by_index(layout, best.counts))
    effort = next(effort for effort in _EFFORTS if tables.units <= effort.units)
    value = _value(tables, stage, best, what, level)
    thorough = what == "cost" or _few_patterns(tables)
    steps = effort.price_steps if thorough else SHORT_PRICE_STEPS
    market = find_prices(tables, stage, valued(tables, stage, np.arange(tables.units), start), value, effort.gap, steps)
    bound = market.bound
    if value - bound > effort.gap * _measure(value, what):
        counts = repaired(tables, market)
        if counts is not None:
            best.offer(_sound(layout, tables.by_choice(counts), best.counts), "prices")
            value = _value(tables, stage, best, what, level)
    for most in effort.patterns if thorough and not best.failure else ():
        if value - bound <= effort.gap * _measure(value, what):
            break
        try:
            plan = solve_program(tables, stage, market, value, _by_index(layout, best.counts), best.seconds, effort.nodes, most)
        except SolverError as error:
            best.failure = str(error)
            break
        if plan is None:
            break
        bound = max(bound, min(plan.bound, value))
        best.offer(_by_variant(layout, plan.counts), "integer program", plan.packing)
        value = _value(tables, stage, best, what, level)
    best.gaps.append(max(0.0, value - bound) / _measure(value, what))


def _few_patterns(tables: Tables) -> bool:
    """Whether a shortage is worth a program: on a large fleet whose GPUs cannot do, millions of patterns are nearly as good."""
    return float(np.max(np.prod(tables.most + 1.0, axis=1), initial=1.0)) <= SHORT_PATTERNS


def _measure(value: float, what: str) -> float:
    """What a distance is related to. A shortage below one phase that lacks an eighth of its demand is as good as none."""
    return max(abs(value), 1e-6 if what == "cost" else 0.125)


def _value(tables: Tables, stage: Stage, best: _Best, what: str, level: int) -> float:
    """What the best plan is worth in this stage."""
    cost = stage.cost_scale * best.score.cost
    if what == "cost":
        return cost
    demand = best.score.demands[level]
    return cost + (best.score.minimums[level] + demand * _demand_as_tie(tables) if what == "minimum" else demand)


def _demand_as_tie(tables: Tables) -> float:
    """All demand together counts less than one replica below a minimum: it tells apart who is to go without."""
    return 0.5 / (float(shortage(np.zeros(1))[0]) * tables.units)


def _stage(tables: Tables, best: _Best, what: str, level: int) -> Stage:
    """What is settled stays: minimums of all before demand, demand of a higher priority before that of a lower one."""
    layout = tables.layout
    counts = tables.counts(_by_index(layout, best.counts))
    replicas = counts.sum(axis=1)
    reached = np.minimum(1.0, (tables.share * counts).sum(axis=1))
    priority = priorities(layout)[level]
    zero = np.zeros(tables.units)
    least = np.minimum(tables.minimum, replicas)
    this = tables.priority == priority
    demand = np.where(this & (tables.needed > 0.0), tables.weight, 0.0)
    if what == "minimum":
        least = np.where(tables.priority > priority, least, 0)
        minimum = np.where(this, tables.weight, 0.0)
        return Stage(zero, least, tables.maximum, demand * _demand_as_tie(tables), minimum, COST_AS_TIE)
    if what == "demand":
        target = np.where(tables.priority > priority, reached, 0.0)
        return Stage(target, least, tables.maximum, demand, zero, COST_AS_TIE)
    return Stage(reached, least, tables.maximum, zero, zero, 1.0)


def _settle(layout: Layout, counts: Mapping[Variant, int], packing: Packing | None) -> Filled:
    """The plan on its nodes, with what is left given to those that lack something.

    What comes on top may be a replica that runs already and then stays where it is: so a plan that has grown is placed again, and
    only counts if that works.
    """
    filled = Filled(layout, counts, packing)
    before = filled.counts()
    filled.top_up()
    grown = filled.counts()
    if grown == before:
        return filled
    again = Filled(layout, grown)
    if again.lost:
        return Filled(layout, before, packing)
    again.top_up()
    return again if again.counts() == grown else Filled(layout, grown)


def _sound(layout: Layout, counts: Mapping[int, int], fallback: Mapping[Variant, int]) -> dict[Variant, int]:
    """Services whose part breaks a rule that prices do not know keep what they have in the fallback."""
    found = _by_variant(layout, counts)
    for units in layout.by_service:
        sizes = {unit.index: sum(found.get(choice.variant, 0) for choice in unit.choices) for unit in units}
        if any(unit.pair is not None and sizes[unit.index] and not sizes[unit.pair] for unit in units):
            for choice in (choice for unit in units for choice in unit.choices):
                found.pop(choice.variant, None)
                if fallback.get(choice.variant):
                    found[choice.variant] = fallback[choice.variant]
    return found


def _by_index(layout: Layout, counts: Mapping[Variant, int]) -> dict[int, int]:
    return {layout.by_variant[variant].index: count for variant, count in counts.items()}


def _by_variant(layout: Layout, counts: Mapping[int, int]) -> dict[Variant, int]:
    return {layout.choices[index].variant: count for index, count in counts.items() if count}


def _free_counts(layout: Layout, replicas: Mapping[Variant, int]) -> dict[Variant, int]:
    fixed = layout.fixed.places
    return {
        variant: left
        for variant, count in replicas.items()
        if variant in layout.by_variant and (left := count - len(fixed.get(variant, ()))) > 0
    }
