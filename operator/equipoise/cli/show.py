"""`equipoise status` and `equipoise explain`: what the status says, for people."""

from __future__ import annotations

import sys

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from equipoise.api.base import problems
from equipoise.api.identity import Phase
from equipoise.api.service import InferenceService
from equipoise.api.status import InferenceServiceStatus
from equipoise.cli.cluster import CannotRead, read_service

_MARKS = {"True": "[green]True[/]", "False": "[red]False[/]", "Unknown": "[yellow]Unknown[/]"}
_BAD_WHEN_TRUE = frozenset({"CapacityLimited", "Progressing", "Rebalancing"})


def show_status(name: str, namespace: str | None) -> int:
    """Print the status; the exit code is 1 when it cannot be read."""
    found = _read(name, namespace)
    if found is None:
        return 1
    console = Console()
    status = found.status
    console.print(f"[bold]{found.key}[/]  generation {found.metadata.generation}, status of {status.observed_generation}")
    if status.endpoint:
        console.print(f"  served at {status.endpoint}")
    console.print(_phases(status))
    console.print(_variants(status))
    console.print(_conditions(status))
    if status.cost_per_hour is not None:
        console.print(f"GPUs {status.gpus}, {status.cost_per_hour} USD per hour")
    return 0


def show_explanation(name: str, namespace: str | None) -> int:
    """Print the last decision; the exit code is 1 when it cannot be read."""
    found = _read(name, namespace)
    if found is None:
        return 1
    console = Console()
    status, decision = found.status, found.status.last_decision
    if decision is None:
        console.print(f"{found.key}: nothing has been decided yet")
        return 0
    console.print(f"[bold]{found.key}[/]  {decision.verdict} since {decision.at_time}")
    for move in decision.moves:
        sides = " → ".join(side for side in (move.donor, move.receiver) if side)
        console.print(f"  {move.kind} {move.replicas}: {sides}" + (f" ({move.reason})" if move.reason else ""))
    for reason in decision.reasons:
        where = f" [{reason.phase.value}]" if reason.phase else ""
        console.print(f"  {reason.name}{where}: {reason.message}", markup=False)
    console.print(_phases(status))
    return 0


def _read(name: str, namespace: str | None) -> InferenceService | None:
    try:
        return InferenceService.parse(read_service(name, namespace))
    except CannotRead as error:
        print(error, file=sys.stderr)
    except ValidationError as error:
        print(f"InferenceService {name} is of another version than this command: {problems(error)}", file=sys.stderr)
    return None


def _phases(status: InferenceServiceStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("phase", "ready", "latency", "target", "attainment", "demand tok/s", "needed tok/s", "capacity tok/s", "lag"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in Phase:
        found = status.phases.of(phase)
        cells = (
            f"{found.ready}/{found.desired}", found.latency, found.target, found.attainment, found.demand_tokens_per_second,
            found.needed_tokens_per_second, found.capacity_tokens_per_second, found.lag,
        )  # fmt: skip
        table.add_row(phase.value, *("?" if cell is None else str(cell) for cell in cells))
    return table


def _variants(status: InferenceServiceStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("replicas of", "pool", "shape", "ready", "starting", "pending", "draining", "start-up", "speed"):
        table.add_column(column, overflow="fold")
    for phase in Phase:
        for item in status.phases.of(phase).variants:
            table.add_row(
                phase.value, item.pool, item.shape, f"{item.ready}/{item.desired}", str(item.starting), str(item.pending),
                str(item.draining), item.startup or "?", f"× {item.speed}" if item.speed else "model",
            )  # fmt: skip
    return table


def _conditions(status: InferenceServiceStatus) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("condition", "status", "reason", "message"):
        table.add_column(column, overflow="fold")
    for item in status.conditions:
        mark = item.status if item.type in _BAD_WHEN_TRUE else _MARKS[item.status]
        table.add_row(item.type, mark, item.reason, item.message)
    return table
