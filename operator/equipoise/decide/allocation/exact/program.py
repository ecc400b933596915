"""The program itself, exact: replicas as integers, nodes as far as replicas wider than one GPU make them matter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Variant
from equipoise.decide.allocation.exact.layout import Choice, Group, Layout, Unit
from equipoise.decide.allocation.exact.nodes import Packing, add_pools
from equipoise.decide.allocation.exact.score import NOTHING, SEGMENTS, Score, priorities, slopes, start_price, weight
from equipoise.decide.allocation.exact.solver import Program, Solution


@dataclass(slots=True)
class Plan:
    """Counts, what is known of their quality, and the places that the program found."""

    counts: dict[Variant, int]
    gap: float
    optimal: bool
    packing: Packing | None = None


@dataclass(slots=True)
class _Columns:
    replicas: dict[int, int] = field(default_factory=dict)
    minimum: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # by priority: columns and weights
    demand: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    cost: dict[int, float] = field(default_factory=dict)


def solve_program(
    layout: Layout,
    start: Mapping[Variant, int],
    start_score: Score,
    seconds: float,
    relative_gap: float = 1e-6,
    nodes: int = 5_000,
) -> Plan | None:
    """The best plan, level by level. None when the solver found none that is better founded than `start`.

    What `start` achieves in full (nothing missing) is not solved for but demanded, so that in the usual case, when everything
    fits, one solve for the cost is all.
    """
    program = Program(seconds, relative_gap, nodes)
    columns = _Columns()
    for unit in layout.units:
        _add_unit(program, columns, layout, unit)
    for unit in layout.units:
        _add_pair(program, columns, layout, unit)
    for group in layout.groups:
        _add_changes(program, columns, group)
    packing = add_pools(program, layout, columns.replicas)
    _add_limits(program, columns, layout)
    order = priorities(layout)
    levels = [(columns.minimum.get(priority, []), value) for priority, value in zip(order, start_score.minimums, strict=True)] + [
        (columns.demand.get(priority, []), value) for priority, value in zip(order, start_score.demands, strict=True)
    ]
    hint = {columns.replicas[choice.index]: float(start.get(choice.variant, 0)) for choice in layout.choices}
    worst, full = 0.0, True
    solution: Solution | None = None
    for entries, value in levels:
        full = full and value <= 0.0
        if full or (solution is not None and all(solution.values[column] <= 1e-9 for column, _ in entries)):
            for column, _ in entries:
                program.upper[column] = 0.0
            continue
        found = program.minimise(dict(entries), hint)
        if found is None:
            return None if solution is None else _plan(layout, columns, packing, solution, math.inf, optimal=False)
        solution = found
        hint = {column: found.values[column] for column in hint}
        worst = max(worst, found.gap)
        program.at_most(entries, found.value + 1e-7 * max(1.0, found.value))
    found = program.minimise(columns.cost, hint)
    if found is None:
        return None if solution is None else _plan(layout, columns, packing, solution, math.inf, optimal=False)
    gap = max(worst, found.gap)
    return _plan(layout, columns, packing, found, gap, optimal=gap <= max(relative_gap, 1e-6))


def _plan(layout: Layout, columns: _Columns, packing: Packing, found: Solution, gap: float, *, optimal: bool) -> Plan:
    counts = {choice.variant: round(found.values[columns.replicas[choice.index]]) for choice in layout.choices}
    packing.read(found)
    return Plan({variant: count for variant, count in counts.items() if count}, gap, optimal, packing)


def _add_unit(program: Program, columns: _Columns, layout: Layout, unit: Unit) -> None:
    priority = layout.priority(unit)
    worth = weight(unit)
    for choice in unit.choices:
        column = program.integer(0.0, float(choice.most))
        columns.replicas[choice.index] = column
        columns.cost[column] = choice.price
    own = [(columns.replicas[choice.index], 1.0) for choice in unit.choices]
    if unit.maximum is not None:
        program.row(own, upper=float(unit.maximum))
    if unit.minimum > 0:
        entries = columns.minimum.setdefault(priority, [])
        missing = program.continuous(0.0, float(unit.minimum))
        entries.append((missing, worth))
        program.row([*own, (missing, 1.0)], lower=float(unit.minimum))
        if unit.base == 0:
            nothing = program.integer(0.0, 1.0)
            entries.append((nothing, NOTHING * worth))
            program.row([*own, (nothing, 1.0)], lower=1.0)
    if unit.needed > 0.0:
        entries = columns.demand.setdefault(priority, [])
        parts = []
        for slope in slopes():
            part = program.continuous(0.0, 1.0 / SEGMENTS)
            parts.append((part, 1.0))
            entries.append((part, slope * worth))
        cover = [(columns.replicas[choice.index], min(1.0, unit.share(choice))) for choice in unit.choices]
        program.row([*cover, *parts], lower=1.0)


def _add_pair(program: Program, columns: _Columns, layout: Layout, unit: Unit) -> None:
    """A first replica of one phase without one of the other serves nothing."""
    if unit.pair is None or not unit.choices:
        return
    most = sum(choice.most for choice in unit.choices)
    if unit.maximum is not None:
        most = min(most, unit.maximum)
    own = [(columns.replicas[choice.index], -1.0) for choice in unit.choices]
    other = [(columns.replicas[choice.index], float(most)) for choice in layout.units[unit.pair].choices]
    program.row([*own, *other], lower=0.0)


def _add_changes(program: Program, columns: _Columns, group: Group) -> None:
    start, flip = start_price(group.choices), group.choices[0].flip
    if start <= 0.0:
        return
    can_flip = group.current > sum(choice.current for choice in group.choices) or len(group.choices) > 1
    for choice in group.choices:
        grown = program.continuous(0.0, float(choice.most))
        columns.cost[grown] = flip if can_flip else start
        program.row([(grown, 1.0), (columns.replicas[choice.index], -1.0)], lower=-float(choice.current))
    if can_flip and start > flip:
        started = program.continuous(0.0, float(sum(choice.most for choice in group.choices)))
        columns.cost[started] = start - flip
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
