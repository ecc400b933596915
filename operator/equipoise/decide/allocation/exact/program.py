"""The program itself, exact: patterns of units that can still be best, and everything that ties units together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from equipoise.decide.allocation.exact.layout import Choice, Group, Layout, Unit
from equipoise.decide.allocation.exact.nodes import Packing, add_pools
from equipoise.decide.allocation.exact.patterns import Search
from equipoise.decide.allocation.exact.prices import Market, merged
from equipoise.decide.allocation.exact.score import start_price
from equipoise.decide.allocation.exact.solver import INFINITY, Program
from equipoise.decide.allocation.exact.stage import Stage
from equipoise.decide.allocation.exact.stage import costs as costs_of
from equipoise.decide.allocation.exact.tables import Patterns, Tables

_SHARES: Final = (1 / 64, 1 / 16, 1 / 4, 1.0)  # of the distance to the bound: how far from its best a unit may be
_GAP: Final = 1e-6


@dataclass(slots=True)
class Plan:
    """Counts by index of choice, a bound on the value of every plan, and the places that the program found."""

    counts: dict[int, int]
    bound: float
    packing: Packing


@dataclass(slots=True)
class _Columns:
    replicas: dict[int, int] = field(default_factory=dict)
    cost: dict[int, float] = field(default_factory=dict)


def solve_program(
    tables: Tables, stage: Stage, market: Market, value: float, start: dict[int, int], seconds: float, nodes: int, most: int
) -> Plan | None:
    """The best plan of a stage, or None when the solver found none.

    In a plan below `value` no unit can be further from its own best at the market's prices than `value` is from the bound: so
    other patterns need not be looked at, and the program is small. Where these are more than `most`, only nearer ones are
    taken, and what the others could give is part of the bound.
    """
    layout = tables.layout
    patterns, beyond = _near(tables, stage, market, value, most)
    program = Program(seconds, _GAP, nodes)
    columns = _Columns()
    penalties = patterns.value - stage.cost_scale * costs_of(tables, patterns.unit, patterns.counts)
    _add_units(program, columns, layout, tables, patterns)
    first = len(program.lower)
    picked = _add_patterns(program, columns, tables, patterns)
    costs = {column: stage.cost_scale * price for column, price in columns.cost.items()}
    for offset, penalty in enumerate(penalties):
        costs[first + offset] = float(penalty)
    for unit in layout.units:
        _add_pair(program, columns, layout, unit)
    changes: dict[int, float] = {}
    for group in layout.groups:
        _add_changes(program, columns, changes, group)
    costs |= {column: stage.cost_scale * price for column, price in changes.items()}
    packing = add_pools(program, layout, columns.replicas)
    _add_limits(program, columns, layout)
    hint = {column: float(start.get(choice, 0)) for choice, column in columns.replicas.items()} if picked else {}
    found = program.minimise(costs, hint)
    if found is None:
        return None
    counts = {choice: count for choice, column in columns.replicas.items() if (count := round(found.values[column]))}
    packing.read(found)
    return Plan(counts, min(max(found.bound, market.bound), beyond), packing)


def _near(tables: Tables, stage: Stage, market: Market, value: float, most: int) -> tuple[Patterns, float]:
    """Patterns that a plan below `value` may have, and what any plan with another one is worth at least."""
    full = max(value - market.bound, 0.0) + 1e-6 * max(1.0, abs(value))
    patterns, beyond = market.patterns, market.bound
    for share in _SHARES:
        search = Search(tables, stage, market.prices, full * share)
        found = search.patterns()
        if search.cut or len(found.unit) > most:
            break
        patterns, beyond = merged(tables, stage, market.patterns, found), market.bound + full * share
    return patterns.of(np.isfinite(patterns.value)), INFINITY if beyond >= value else beyond


def _add_units(program: Program, columns: _Columns, layout: Layout, tables: Tables, patterns: Patterns) -> None:
    """Replicas of every choice, as many as some pattern has."""
    most = np.zeros((tables.units, tables.width), dtype=np.int64)
    np.maximum.at(most, patterns.unit, patterns.counts)
    for unit in layout.units:
        for place, choice in enumerate(unit.choices):
            column = program.integer(0.0, float(most[unit.index, place]))
            columns.replicas[choice.index] = column
            columns.cost[column] = choice.price


def _add_patterns(program: Program, columns: _Columns, tables: Tables, patterns: Patterns) -> bool:
    """Every unit takes one of its patterns: that is what its replicas are."""
    picked = [program.integer(0.0, 1.0) for _ in patterns.unit]
    edges = np.flatnonzero(np.r_[True, patterns.unit[1:] != patterns.unit[:-1], True])
    for begin, end in pairwise(edges):
        program.row([(picked[place], 1.0) for place in range(begin, end)], lower=1.0, upper=1.0)
        unit = int(patterns.unit[begin])
        for k in range(tables.width):
            choice = int(tables.index[unit, k])
            if choice >= 0:
                own = [(picked[place], float(patterns.counts[place, k])) for place in range(begin, end)]
                program.row([*own, (columns.replicas[choice], -1.0)], lower=0.0, upper=0.0)
    return bool(picked)


def _add_pair(program: Program, columns: _Columns, layout: Layout, unit: Unit) -> None:
    """A first replica of one phase without one of the other serves nothing."""
    if unit.pair is None or not unit.choices:
        return
    own = [columns.replicas[choice.index] for choice in unit.choices]
    most = sum(program.upper[column] for column in own)
    other = [(columns.replicas[choice.index], most) for choice in layout.units[unit.pair].choices]
    program.row([*((column, -1.0) for column in own), *other], lower=0.0)


def _add_changes(program: Program, columns: _Columns, changes: dict[int, float], group: Group) -> None:
    start, flip = start_price(group.choices), group.choices[0].flip
    if start <= 0.0:
        return
    can_flip = group.current > sum(choice.current for choice in group.choices) or len(group.choices) > 1
    most = 0.0
    for choice in group.choices:
        upper = program.upper[columns.replicas[choice.index]]
        most += upper
        grown = program.continuous(0.0, upper)
        changes[grown] = flip if can_flip else start
        program.row([(grown, 1.0), (columns.replicas[choice.index], -1.0)], lower=-float(choice.current))
    if can_flip and start > flip:
        started = program.continuous(0.0, most)
        changes[started] = start - flip
        replicas = [(columns.replicas[choice.index], -1.0) for choice in group.choices]
        program.row([(started, 1.0), *replicas], lower=-float(group.current))


def _add_limits(program: Program, columns: _Columns, layout: Layout) -> None:
    for position, service in enumerate(layout.services):
        chosen = list(_choices(layout.by_service[position]))
        if not chosen:
            continue
        if service.max_gpus is not None:
            left = max(0, service.max_gpus - layout.fixed_gpus[position])
            program.row([(columns.replicas[choice.index], float(choice.gpus)) for choice in chosen], upper=float(left))
        if service.max_cost_usd_per_hour is not None:
            spare = max(0.0, service.max_cost_usd_per_hour - layout.fixed_cost[position])
            entries = [(columns.replicas[choice.index], choice.option.price_usd_per_hour) for choice in chosen]
            program.row(entries, upper=spare + 1e-9)


def _choices(units: Iterable[Unit]) -> Iterable[Choice]:
    for unit in units:
        yield from unit.choices
