"""One question at a time: what a stage minimises, and what stages before it have settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from equipoise.decide.allocation.exact.score import COVERED, NOTHING, SEGMENTS, STEEPER
from equipoise.decide.allocation.exact.tables import Floats, Integers, Tables

COST_AS_TIE: Final = 1e-7  # a shortage is not traded for money: cost only tells equal shortages apart


@dataclass(slots=True)
class Stage:
    """Per unit: coverage and replicas that must be there, and weights of what may be missing."""

    target: Floats  # share of the need that must be covered
    minimum: Integers
    maximum: Integers
    demand_weight: Floats
    minimum_weight: Floats
    cost_scale: float

    def penalty(self, tables: Tables, unit: Integers, coverage: Floats, replicas: Integers) -> Floats:
        """What is missing, weighted. Infinite where something that must be there is not."""
        found = self.demand_weight[unit] * shortage(coverage)
        weights = self.minimum_weight[unit]
        if np.any(weights):
            missing = np.maximum(0, tables.minimum[unit] - replicas)
            nothing = (missing > 0) & (replicas + tables.base[unit] == 0)
            found = found + weights * (missing + NOTHING * nothing)
        bad = (coverage < self.target[unit] - COVERED) | (replicas < self.minimum[unit])
        settled: Floats = np.where(bad, np.inf, found)
        return settled

    def value(self, tables: Tables, counts: Integers) -> float:
        """What a whole plan is worth in this stage, changes priced phase by phase."""
        unit = np.arange(tables.units)
        coverage = (tables.share * counts).sum(axis=1)
        penalties = self.penalty(tables, unit, coverage, counts.sum(axis=1))
        return float(penalties.sum()) + self.cost_scale * float(costs(tables, unit, counts).sum())


def shortage(coverage: Floats) -> Floats:
    """The same as `score.penalty`, for many at once."""
    missing = np.maximum(0.0, 1.0 - coverage - COVERED)
    total = np.zeros_like(missing)
    for step in range(SEGMENTS):
        total += STEEPER**step * np.clip(missing - step / SEGMENTS, 0.0, 1.0 / SEGMENTS)
    return total


def costs(tables: Tables, unit: Integers, counts: Integers) -> Floats:
    """USD per hour of patterns with changes, each phase taken alone: never more than what both phases together cost."""
    current, kin = tables.current[unit], tables.kin[unit]
    flipped = np.clip(counts - current, 0, kin)
    started = np.maximum(0, counts - current - kin)
    each = counts * tables.price[unit] + flipped * tables.flip[unit] + started * tables.start[unit]
    total: Floats = each.sum(axis=1)
    return total
