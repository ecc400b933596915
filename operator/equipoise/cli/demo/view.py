"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from equipoise.api.identity import Phase
from equipoise.cli.demo.samples import Sample, SeenMove
from equipoise.cli.demo.script import POOLS, TARGETS

_WORDS = {Phase.PREFILL: "TTFT", Phase.DECODE: "TPOT"}
_SPARKS = "▁▂▃▄▅▆▇█"
_PLAIN_EVERY_SECONDS = 5.0
_HISTORY = 60


class View(Protocol):
    """Shows samples as they come."""

    def show(self, sample: Sample, moves: Sequence[SeenMove], decision: dict[str, Any]) -> None:
        """Show one sample, the moves since the last, and the last decision."""
        ...

    def close(self) -> None:
        """Leave the screen as it should stay."""
        ...


def open_view(console: Console, *, plain: bool) -> View:
    """A live view on a terminal, plain lines otherwise."""
    return LiveView(console) if console.is_terminal and not plain else PlainView(console)


class PlainView:
    """One line every few seconds and one per move."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = float("-inf")
        self._traffic = ""

    def show(self, sample: Sample, moves: Sequence[SeenMove], decision: dict[str, Any]) -> None:
        """Print what is due."""
        out = self._console.print
        if sample.traffic != self._traffic and sample.traffic:
            out(f"{sample.at_seconds:6.0f} s  traffic turns to {sample.traffic}", markup=False, highlight=False)
            self._traffic = sample.traffic
        for move in moves:
            out(f"{move.at_seconds:6.0f} s  {move_text(move)}", markup=False, highlight=False, soft_wrap=True)
        if sample.at_seconds - self._last < _PLAIN_EVERY_SECONDS:
            return
        self._last = sample.at_seconds
        latencies = "  ".join(f"{_WORDS[phase]} {latency_text(sample, phase)}" for phase in Phase)
        replicas = "  ".join(f"{phase.value} {replica_text(sample, phase)}" for phase in Phase)
        out(
            f"{sample.at_seconds:6.0f} s  {sample.traffic:5} {sample.requests_per_second:5.1f}/s  {latencies}  {replicas}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def close(self) -> None:
        """Nothing to put back."""


class LiveView:
    """A table that stays in place, with both phases' last minute as small curves."""

    def __init__(self, console: Console) -> None:
        self._stack = ExitStack()
        self._live = self._stack.enter_context(Live(console=console, refresh_per_second=4, transient=False))
        self._history: dict[Phase, list[float | None]] = {phase: [] for phase in Phase}
        self._moves: list[SeenMove] = []

    def show(self, sample: Sample, moves: Sequence[SeenMove], decision: dict[str, Any]) -> None:
        """Redraw."""
        self._moves += moves
        for phase in Phase:
            self._history[phase] = [*self._history[phase], _latency(sample, phase)][-_HISTORY:]
        head = Text(
            f"{sample.at_seconds:5.0f} s   traffic: {sample.traffic} at {sample.requests_per_second:.0f} requests/s   "
            f"completed {sample.completed}, refused {sample.refused}, lost {sample.lost}"
        )
        parts: list[Text | Table] = [head, self._phases(sample), _pools(sample), *self._decisions(decision)]
        self._live.update(Panel(Group(*parts), title="Equipoise", border_style="cyan"))

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._stack.close()

    def _phases(self, sample: Sample) -> Table:
        table = Table(box=None, pad_edge=False, expand=False)
        for column in ("phase", "", "p95", "target", "last minute", "ready"):
            table.add_column(column)
        for phase in Phase:
            late = (_latency(sample, phase) or 0.0) > TARGETS[phase]
            table.add_row(
                phase.value, _WORDS[phase], Text(latency_text(sample, phase), style="bold red" if late else "green"),
                _seconds(TARGETS[phase]), _curve(self._history[phase], TARGETS[phase]), replica_text(sample, phase),
            )  # fmt: skip
        return table

    def _decisions(self, decision: dict[str, Any]) -> list[Text]:
        lines = [Text(f"{move.at_seconds:5.0f} s  {move_text(move)}", style="cyan") for move in self._moves[-4:]]
        reasons = decision.get("reasons", ())
        why = "; ".join(f"{item['name']}: {item.get('message', '')}" for item in reasons[:2])
        return [Text(""), *lines, Text(f"now: {decision.get('verdict', '?')}  {why}", style="dim")]


def move_text(move: SeenMove) -> str:
    """A move in one line."""
    sides = " → ".join(side for side in (move.donor, move.receiver) if side)
    return f"{move.kind} {move.replicas}: {sides}" + (f"  ({move.reason})" if move.reason else "")


def latency_text(sample: Sample, phase: Phase) -> str:
    """The latency with a mark when it is past the target."""
    found = _latency(sample, phase)
    if found is None:
        return "-"
    return _seconds(found) + ("!" if found > TARGETS[phase] else "")


def replica_text(sample: Sample, phase: Phase) -> str:
    """Ready replicas of a phase by pool, with the wanted count where it differs."""
    parts = []
    for pool in POOLS:
        ready, desired = sample.ready.get((phase, pool.name), 0), sample.desired.get((phase, pool.name), 0)
        if ready or desired:
            parts.append(f"{pool.name}:{ready}" + (f"/{desired}" if desired != ready else ""))
    return " ".join(parts) or "none"


def _pools(sample: Sample) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("pool", "GPUs held", "of"):
        table.add_column(column)
    for pool in POOLS:
        table.add_row(pool.name, str(sample.gpus_bound.get(pool.name, 0)), str(pool.gpus))
    return table


def _latency(sample: Sample, phase: Phase) -> float | None:
    return sample.ttft_seconds if phase is Phase.PREFILL else sample.tpot_seconds


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _curve(values: Sequence[float | None], target: float) -> Text:
    text = Text()
    for value in values:
        if value is None:
            text.append(" ")
            continue
        step = min(len(_SPARKS) - 1, int(value / target * 4))
        text.append(_SPARKS[step], style="red" if value > target else "green")
    return text
