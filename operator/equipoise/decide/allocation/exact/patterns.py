"""All units sized at once at given prices: branch and bound over counts, the same step for every unit."""

from __future__ import annotations

from typing import Final

import numpy as np

from equipoise.decide.allocation.exact.score import SEGMENTS, STEEPER
from equipoise.decide.allocation.exact.stage import Stage, costs, shortage
from equipoise.decide.allocation.exact.tables import Floats, Integers, Patterns, Tables

# Partial patterns looked at side by side; beyond that the least promising ones only count as a bound. Enough for every unit of a
# large problem, and few enough that a small one whose demand is far beyond the fleet costs a fraction of a second.
MOST_NODES: Final = 10_000
MOST_NODES_PER_UNIT: Final = 100
_TOLERANCE: Final = 1e-9


class Search:
    """Patterns of all units whose value at prices is within `slack` of the unit's best (0: one best pattern per unit).

    `best` is the least value per unit and `bound` what no pattern of the unit can be below; they differ only where the search
    was cut short. A count is chosen for one option after the other, cheapest per token first; what is still to be covered
    costs at least as much per token as the next option does, and a partial pattern that cannot be among the wanted is dropped.
    """

    def __init__(self, tables: Tables, stage: Stage, prices: Floats, slack: float = 0.0) -> None:
        self.tables, self.stage, self.slack = tables, stage, slack
        scale = stage.cost_scale
        shadow: Floats = tables.use @ prices if len(prices) else np.zeros(tables.price.shape)
        self._replica = scale * tables.price + shadow
        first = np.where(tables.current > 0, 0.0, np.where(tables.kin > 0, tables.flip, tables.start))
        lowest = np.where(tables.most > 0, self._replica + scale * first, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(tables.share > 0.0, lowest / tables.share, np.where(np.isfinite(lowest), 1e12 + lowest, np.inf))
        self._order = np.argsort(ratio, axis=1, kind="stable")
        self._ratio = np.take_along_axis(np.where(tables.share > 0.0, ratio, np.inf), self._order, axis=1)
        ordered = np.take_along_axis(lowest, self._order, axis=1)
        self._lowest = np.minimum.accumulate(ordered[:, ::-1], axis=1)[:, ::-1]
        self.cut = False
        self.best = np.full(tables.units, np.inf)
        self.bound = np.full(tables.units, np.inf)
        self._found: list[tuple[Integers, Integers, Floats]] = []
        self._run()
        self.bound = np.minimum(self.bound, self.best)

    def _run(self) -> None:
        tables = self.tables
        unit = np.arange(tables.units)
        counts = np.zeros((tables.units, tables.width), dtype=np.int64)
        cost, coverage = np.zeros(tables.units), np.zeros(tables.units)
        replicas = np.zeros(tables.units, dtype=np.int64)
        self._note(unit, counts, cost, coverage, replicas)
        for level in range(tables.width):
            keep = self._promising(level, unit, cost, coverage, replicas)
            unit, counts, cost, coverage, replicas = unit[keep], counts[keep], cost[keep], coverage[keep], replicas[keep]
            if not len(unit) or (self.cut and self.slack > 0.0):
                break
            choice = self._order[unit, level]
            most = self._useful(unit, choice, coverage, replicas)
            parent = np.repeat(np.arange(len(unit)), most + 1)
            added = np.arange(len(parent)) - np.repeat(np.cumsum(most + 1) - most - 1, most + 1)
            unit, choice = unit[parent], choice[parent]
            current, kin = tables.current[unit, choice], tables.kin[unit, choice]
            change = np.clip(added - current, 0, kin) * tables.flip[unit, choice]
            change += np.maximum(0, added - current - kin) * tables.start[unit, choice]
            cost = cost[parent] + added * self._replica[unit, choice] + self.stage.cost_scale * change
            coverage = coverage[parent] + added * tables.share[unit, choice]
            replicas = replicas[parent] + added
            counts = counts[parent]
            counts[np.arange(len(unit)), choice] = added
            new = added > 0
            self._note(unit[new], counts[new], cost[new], coverage[new], replicas[new])

    def _useful(self, unit: Integers, choice: Integers, coverage: Floats, replicas: Integers) -> Integers:
        """How many more replicas of a choice can be of any use."""
        tables, stage = self.tables, self.stage
        share = tables.share[unit, choice]
        wish = np.where(stage.demand_weight[unit] > 0.0, 1.0, stage.target[unit])
        with np.errstate(divide="ignore", invalid="ignore"):
            cover = np.where(share > 0.0, np.ceil((wish - coverage) / np.where(share > 0.0, share, 1.0) - 1e-9), 0.0)
        floor = np.where(stage.minimum_weight[unit] > 0.0, tables.minimum[unit], stage.minimum[unit])
        wanted = np.maximum(cover.astype(np.int64), floor - replicas)
        most = np.minimum(np.minimum(wanted, tables.most[unit, choice]), stage.maximum[unit] - replicas)
        useful: Integers = np.maximum(0, most)
        return useful

    def _note(self, unit: Integers, counts: Integers, cost: Floats, coverage: Floats, replicas: Integers) -> None:
        """Take patterns as complete."""
        value = cost + self.stage.penalty(self.tables, unit, coverage, replicas)
        np.minimum.at(self.best, unit, value)
        good = value <= self._limit(unit)
        if np.any(good):
            self._found.append((unit[good], counts[good], value[good]))

    def _limit(self, unit: Integers) -> Floats:
        best = self.best[unit]
        with np.errstate(invalid="ignore"):
            limit: Floats = best + self.slack + _TOLERANCE * np.where(np.isfinite(best), np.abs(best), 0.0)
        return limit

    def _promising(self, level: int, unit: Integers, cost: Floats, coverage: Floats, replicas: Integers) -> Integers:
        """Partial patterns that may still lead to a wanted one, in their order."""
        stage = self.stage
        ratio, weight = self._ratio[unit, level], stage.demand_weight[unit]
        base = np.maximum(coverage, stage.target[unit])
        if np.any(weight > 0.0):
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.floor(np.log(np.maximum(ratio, 1e-300) / weight) / np.log(STEEPER)) + 1.0
            steps = np.where(weight > 0.0, np.clip(steps, 0.0, SEGMENTS), SEGMENTS)
            reach = np.maximum(base, np.minimum(1.0, 1.0 - steps / SEGMENTS))
        else:
            reach = base
        lack = reach - coverage
        with np.errstate(invalid="ignore"):
            to_cover = np.where(lack > 1e-9, ratio * lack, 0.0)
            left = np.maximum(0, stage.minimum[unit] - replicas)
            to_fill = np.where(left > 0, left * self._lowest[unit, level], 0.0)
        bound = cost + np.maximum(to_cover + weight * shortage(reach), to_fill)
        limit = self._limit(unit) if self.slack > 0.0 else self.best[unit] * (1.0 - _TOLERANCE)
        good = np.flatnonzero((bound <= limit) & np.isfinite(bound))
        most = max(MOST_NODES, MOST_NODES_PER_UNIT * self.tables.units)
        if len(good) > most:
            self.cut = True
            order = good[np.argsort(bound[good], kind="stable")]
            dropped = order[most:]
            np.minimum.at(self.bound, unit[dropped], bound[dropped])
            good = np.sort(order[:most])
        return good

    def patterns(self) -> Patterns:
        """The wanted ones, by unit, the best of each unit first; valued without prices."""
        unit = np.concatenate([unit for unit, _, _ in self._found])
        counts = np.concatenate([counts for _, counts, _ in self._found])
        value = np.concatenate([value for _, _, value in self._found])
        good = np.flatnonzero(value <= self._limit(unit))
        order = good[np.lexsort((value[good], unit[good]))]
        unit, counts, value = unit[order], counts[order], value[order]
        if self.slack <= 0.0:
            first = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
            unit, counts = unit[first], counts[first]
        return valued(self.tables, self.stage, unit, counts)


def valued(tables: Tables, stage: Stage, unit: Integers, counts: Integers) -> Patterns:
    """Patterns with what they are worth in a stage."""
    coverage = (tables.share[unit] * counts).sum(axis=1)
    value = stage.penalty(tables, unit, coverage, counts.sum(axis=1)) + stage.cost_scale * costs(tables, unit, counts)
    return Patterns(unit, counts, value)
