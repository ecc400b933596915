"""One plan for all services and pools: the program where it is small, prices of pools where it is large."""

from __future__ import annotations

import math
from collections.abc import Mapping

from equipoise.api.identity import Variant
from equipoise.decide.allocation import greedy
from equipoise.decide.allocation.exact.answer import Filled
from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.nodes import Packing
from equipoise.decide.allocation.exact.program import solve_program
from equipoise.decide.allocation.exact.score import Score, score, within_limits
from equipoise.decide.allocation.types import Allocation, AllocationProblem


def allocate(problem: AllocationProblem) -> Allocation:
    """Replicas for all services at once."""
    layout = Layout(problem)
    best = _Best(layout)
    best.offer(_free_counts(layout, greedy.allocate(problem).replicas), "greedy")
    best.offer({}, "nothing")
    best.offer({choice.variant: choice.current for choice in layout.choices if choice.current}, "current")
    if layout.choices:
        plan = solve_program(layout, best.counts, best.score, problem.time_limit_seconds)
        if plan is not None:
            best.offer(plan.counts, "integer program", plan.gap, plan.packing)
    return best.allocation()


class _Best:
    """The best plan so far that can be placed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.filled: Filled | None = None
        self.counts: dict[Variant, int] = {}
        self.score = Score((), (), math.inf)
        self.gap, self.method = math.nan, ""

    def offer(self, counts: Mapping[Variant, int], method: str, gap: float = math.nan, packing: Packing | None = None) -> None:
        if not within_limits(self.layout, counts):
            return
        filled = _settle(self.layout, counts, packing)
        counts = filled.counts()
        found = score(self.layout, counts)
        if self.filled is None or self.score.worse_than(found):
            self.filled, self.counts, self.score, self.gap, self.method = filled, counts, found, gap, method
        elif not found.worse_than(self.score) and not math.isnan(gap):
            self.gap, self.method = gap, method

    def allocation(self) -> Allocation:
        if self.filled is None:
            raise RuntimeError("no plan was ever offered, though the empty one always is")
        return self.filled.allocation(self.gap, self.method)


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


def _free_counts(layout: Layout, replicas: Mapping[Variant, int]) -> dict[Variant, int]:
    fixed = layout.fixed.places
    return {
        variant: left
        for variant, count in replicas.items()
        if variant in layout.by_variant and (left := count - len(fixed.get(variant, ()))) > 0
    }
