"""The layout as arrays: one row per unit, one column per choice, so that all units are worked on at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.nodes import pool_rows
from equipoise.decide.allocation.exact.score import weight

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MANY: Final = 1 << 30  # stands for no limit


class Tables:
    """Figures of all units (U) and their choices (K, padded with choices of which there may be none).

    `rows` are what units share: GPUs of a pool counted in chunks of a width (see `pool_rows`), then the budgets of services. A
    replica of choice k of unit u takes `use[u, k, r]` of row r, of which there is `room[r]`.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        units = layout.units
        self.units = len(units)
        self.width = max((len(unit.choices) for unit in units), default=0)
        shape = (self.units, self.width)
        self.index = np.full(shape, -1, dtype=np.int64)
        self.share, self.price = np.zeros(shape), np.zeros(shape)
        self.start, self.flip = np.zeros(shape), np.zeros(shape)
        self.current, self.kin, self.most = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self.gpus = np.zeros(shape, dtype=np.int64)
        self.needed = np.array([unit.needed for unit in units])
        self.minimum = np.array([unit.minimum for unit in units], dtype=np.int64)
        self.base = np.array([unit.base for unit in units], dtype=np.int64)
        self.maximum = np.array([MANY if unit.maximum is None else unit.maximum for unit in units], dtype=np.int64)
        self.weight = np.array([weight(layout, unit) for unit in units])
        self.priority = np.array([layout.priority(unit) for unit in units], dtype=np.int64)
        rows = pool_rows(layout)
        names = {(pool, width): place for place, (pool, width, _) in enumerate(rows)}
        by_pool: dict[str, list[int]] = {}
        for pool, width, _ in rows:
            by_pool.setdefault(pool, []).append(width)
        room = [float(count) for _, _, count in rows]
        budgets = self._budgets(room)
        self.use = np.zeros((*shape, len(room)))
        for unit in units:
            for place, choice in enumerate(unit.choices):
                at = (unit.index, place)
                self.index[at] = choice.index
                self.share[at] = choice.rate / unit.needed if unit.needed > 0.0 else 0.0
                self.price[at], self.start[at], self.flip[at] = choice.price, choice.start, choice.flip
                self.current[at], self.kin[at], self.most[at] = choice.current, choice.kin, choice.most
                self.gpus[at] = choice.gpus
                pool = choice.variant.pool
                for width in by_pool[pool]:
                    if width <= choice.width:
                        self.use[unit.index, place, names[pool, width]] = choice.chunks * (choice.width // width)
                for row, money in budgets.get(unit.service, ()):
                    self.use[unit.index, place, row] = choice.option.price_usd_per_hour if money else choice.gpus
        self.room = np.array(room)

    def _budgets(self, room: list[float]) -> dict[int, list[tuple[int, bool]]]:
        """Rows of maxGPUs and maxCost per service; whether it is money. Their room goes to the end of `room`."""
        found: dict[int, list[tuple[int, bool]]] = {}
        layout = self.layout
        for place, service in enumerate(layout.services):
            if service.max_gpus is not None:
                found.setdefault(place, []).append((len(room), False))
                room.append(float(max(0, service.max_gpus - layout.fixed_gpus[place])))
            if service.max_cost_usd_per_hour is not None:
                found.setdefault(place, []).append((len(room), True))
                room.append(max(0.0, service.max_cost_usd_per_hour - layout.fixed_cost[place]) + 1e-9)
        return found

    def counts(self, given: dict[int, int]) -> Integers:
        """Replicas by index of choice as an array."""
        found = np.zeros((self.units, self.width), dtype=np.int64)
        for choice, count in given.items():
            unit = self.layout.choices[choice].unit
            found[unit, choice - self.layout.units[unit].choices[0].index] = count
        return found

    def by_choice(self, counts: Integers) -> dict[int, int]:
        """The other way round; zeros left out."""
        return {int(self.index[u, k]): int(counts[u, k]) for u, k in zip(*np.nonzero(counts), strict=True)}


@dataclass(slots=True)
class Patterns:
    """Ways to size units: counts per choice, and what each is worth in a stage before any price of shared rows."""

    unit: Integers
    counts: Integers
    value: Floats

    def of(self, chosen: npt.NDArray[np.bool_] | Integers) -> Patterns:
        """Some of them."""
        return Patterns(self.unit[chosen], self.counts[chosen], self.value[chosen])


def use_of(tables: Tables, patterns: Patterns) -> Floats:
    """What patterns take of each row."""
    taken: Floats = np.einsum("pk,pkr->pr", patterns.counts, tables.use[patterns.unit])
    return taken
