"""From what every unit would choose at the prices to a plan that keeps the rows: a few units give way, then gaps are used."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from equipoise.decide.allocation.exact.prices import Market
from equipoise.decide.allocation.exact.tables import Floats, Integers, Patterns, Tables, use_of

_PASSES: Final = 30
_EPSILON: Final = 1e-9


def repaired(tables: Tables, market: Market) -> Integers | None:
    """Counts (units × choices) near the bound that keep every row; None where no such plan is found."""
    patterns = market.patterns.of(np.isfinite(market.patterns.value))
    if len(np.unique(patterns.unit)) < tables.units:
        return None
    plan = _Plan(tables, patterns, patterns.value + use_of(tables, patterns) @ market.prices)
    for _ in range(_PASSES):
        if not plan.excess().any():
            break
        if not plan.give_way():
            return None
    else:
        return None
    for _ in range(_PASSES):
        if not plan.use_gaps():
            break
    counts: Integers = patterns.counts[plan.chosen]
    return counts


class _Plan:
    """One pattern per unit."""

    def __init__(self, tables: Tables, patterns: Patterns, at_prices: Floats) -> None:
        self.room, self.patterns, self.at_prices = tables.room, patterns, at_prices
        self.use = use_of(tables, patterns)
        order = np.lexsort((patterns.value, at_prices, patterns.unit))
        first = np.flatnonzero(np.r_[True, patterns.unit[order][1:] != patterns.unit[order][:-1]])
        self.chosen: Integers = order[first]
        self.taken: Floats = self.use[self.chosen].sum(axis=0)

    def excess(self) -> npt.NDArray[np.bool_]:
        """Rows of which more is taken than there is."""
        over: npt.NDArray[np.bool_] = self.taken > self.room + _EPSILON
        return over

    def give_way(self) -> bool:
        """Units change to patterns with which less is taken in excess: first those that lose least by it."""
        now = self.chosen[self.patterns.unit]
        relief = self._over(self.taken) - self._over(self.taken + self.use - self.use[now])
        loss = self.at_prices - self.at_prices[now]
        fit = np.flatnonzero(relief > _EPSILON)
        moved: set[int] = set()
        for pattern in fit[np.lexsort((fit, loss[fit] / relief[fit]))]:
            unit = int(self.patterns.unit[pattern])
            after = self.taken + self.use[pattern] - self.use[self.chosen[unit]]
            before = float(self._over(self.taken))
            if before <= _EPSILON:
                break
            # Where others have moved meanwhile a change may bring less than it promised: then the next pass looks again.
            if unit not in moved and before - float(self._over(after)) >= 0.5 * relief[pattern]:
                self.taken, self.chosen[unit] = after, pattern
                moved.add(unit)
        return bool(moved)

    def _over(self, taken: Floats) -> Floats:
        """What is taken in excess, in shares of the rows."""
        over: Floats = (np.maximum(0.0, taken - self.room) / np.maximum(self.room, 1.0)).sum(axis=-1)
        return over

    def use_gaps(self) -> bool:
        """Units change to better patterns that what is left has room for: first those that gain most."""
        now = self.chosen[self.patterns.unit]
        gain = self.patterns.value[now] - self.patterns.value
        change = self.use - self.use[now]
        tight = (self.taken + change > self.room + _EPSILON) & (change > _EPSILON)
        fit = np.flatnonzero((gain > _EPSILON * (1.0 + np.abs(self.patterns.value))) & ~tight.any(axis=1))
        moved: set[int] = set()
        for pattern in fit[np.lexsort((fit, -gain[fit]))]:
            unit = int(self.patterns.unit[pattern])
            change = self.use[pattern] - self.use[self.chosen[unit]]
            after = self.taken + change
            if unit not in moved and not ((after > self.room + _EPSILON) & (change > _EPSILON)).any():
                self.taken, self.chosen[unit] = after, pattern
                moved.add(unit)
        return bool(moved)
