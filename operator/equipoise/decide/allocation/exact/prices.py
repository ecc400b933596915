"""Prices of what units share: the plan falls apart into units, and the prices prove how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from equipoise.decide.allocation.exact.patterns import Search, valued
from equipoise.decide.allocation.exact.stage import Stage
from equipoise.decide.allocation.exact.tables import Floats, Patterns, Tables, use_of

STEPS: Final = 30  # of the search for prices, at most
_INNER: Final = 120  # steps on the patterns known so far between two searches over all patterns


@dataclass(slots=True)
class Market:
    """Prices per shared row, the bound they prove, and the patterns that were best at one price or another."""

    prices: Floats
    bound: float
    patterns: Patterns
    history: list[float] = field(default_factory=list)


def find_prices(tables: Tables, stage: Stage, known: Patterns, value: float, gap: float, steps: int = STEPS) -> Market:
    """Prices (USD, or shortage, per GPU or chunk) at which units that look only after themselves share what there is.

    Lagrange's relaxation: whatever the prices, the sum of every unit's best pattern at these prices, less what the rows cost,
    is below the value of every plan that keeps the rows. The highest such bound is looked for: on the patterns known so far
    by steps along the excess demand (Polyak), then over all patterns, which may show new ones. `value` is that of a plan at hand.
    """
    prices = np.zeros(len(tables.room))
    market = Market(prices, -np.inf, known)
    for _ in range(steps):
        search = Search(tables, stage, prices)
        bound = float(search.bound.sum() - prices @ tables.room)
        market.history.append(bound)
        if bound > market.bound:
            market.bound, market.prices = bound, prices
        if not np.isfinite(market.bound) or value - market.bound <= gap * max(abs(value), 1e-9):
            break
        before = len(market.patterns.unit)
        market.patterns = merged(tables, stage, market.patterns, search.patterns())
        if len(market.patterns.unit) == before and not np.any(prices):
            break
        prices, reachable = _on_known(tables, market.patterns, market.prices, value, 0.1 * gap)
        if reachable - market.bound <= 0.2 * gap * max(abs(market.bound), 1e-9):
            break
    return market


def _on_known(tables: Tables, patterns: Patterns, start: Floats, value: float, precision: float) -> tuple[Floats, float]:
    """The best prices where units choose among known patterns only, and the bound there."""
    used = use_of(tables, patterns)
    first = np.flatnonzero(np.r_[True, patterns.unit[1:] != patterns.unit[:-1]])
    length = np.diff(np.r_[first, len(patterns.unit)])
    scale = np.maximum(1.0, tables.room)
    prices, best, best_prices = start.copy(), -np.inf, start
    ambition, calm = np.inf, 0
    for _ in range(_INNER):
        at_prices = patterns.value + used @ prices
        least = np.minimum.reduceat(at_prices, first)
        bound = float(least.sum() - prices @ tables.room)
        if not np.isfinite(best):
            ambition = 0.5 * max(value - bound, 1e-9)
        if not np.isfinite(best) or bound > best + 0.05 * ambition:
            calm = 0
        else:
            calm += 1
        if not np.isfinite(best) or bound > best:
            best, best_prices = bound, prices
        if calm >= 4:
            ambition, calm, prices = 0.5 * ambition, 0, best_prices
            if ambition <= precision * max(abs(best), 1e-9):
                break
            at_prices = patterns.value + used @ prices
            least = np.minimum.reduceat(at_prices, first)
            bound = best
        chosen = np.flatnonzero(at_prices <= np.repeat(least, length))
        chosen = chosen[np.r_[True, patterns.unit[chosen][1:] != patterns.unit[chosen][:-1]]]
        excess = used[chosen].sum(axis=0) - tables.room
        excess = np.where((prices <= 0.0) & (excess < 0.0), 0.0, excess)
        norm = float((excess**2 / scale).sum())
        if norm <= 1e-18:
            break
        prices = np.maximum(0.0, prices + (best + ambition - bound) / norm * excess / scale)
    return best_prices, best


def merged(tables: Tables, stage: Stage, known: Patterns, new: Patterns) -> Patterns:
    """Both sets of patterns, each pattern once, by unit."""
    unit = np.concatenate([known.unit, new.unit])
    counts = np.concatenate([known.counts, new.counts])
    both = np.unique(np.column_stack([unit, counts]), axis=0)
    return valued(tables, stage, both[:, 0], both[:, 1:])
