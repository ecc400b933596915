"""The study as a picture: cost over targets, and what a token of each phase costs on each pool."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from equipoise.api.identity import Phase
from equipoise.api.values import format_duration
from equipoise.cli.plan.frontier import Frontier
from equipoise.cli.plan.shapes import ShapeRow, Ways
from equipoise.cli.plan.study import Study
from equipoise.cli.plan.words import per_million

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

_COLOURS: Final = ("#7f1d1d", "#c2410c", "#1d4ed8", "#0f766e", "#4d7c0f")
_PHASE_COLOURS: Final = {Phase.PREFILL: "#f97316", Phase.DECODE: "#3b82f6"}
_WIDTH, _HEIGHT = 12.0, 4.8


def draw(found: Study, path: Path) -> None:
    """Write the picture (the ending chooses the format): one row per service that has a demand, else per service."""
    services = [service for service in found.services if any(item.key == service.key for item in found.frontiers)]
    rows = services or list(found.services)
    figure, axes = plt.subplots(len(rows), 2, figsize=(_WIDTH, _HEIGHT * len(rows)), squeeze=False, layout="constrained")
    for (left, right), service in zip(axes, rows, strict=True):
        frontier = next((item for item in found.frontiers if item.key == service.key), None)
        if frontier is None:
            left.set_axis_off()
        else:
            own = service.policy.targets
            _costs(left, frontier, own.ttft_seconds, own.tpot_seconds)
        left.set_title(f"{service.key}: cheapest plan", loc="left", fontsize=11)
        _pools(right, found.ways[service.key])
        right.set_title("what a million tokens cost on each pool", loc="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _costs(axis: Any, found: Frontier, own_ttft: float, own_tpot: float) -> None:
    for tpot, colour in zip(found.tpot_seconds, _COLOURS, strict=False):
        known = [
            (ttft, point.usd_per_hour) for ttft in found.ttft_seconds if (point := found.at(ttft, tpot)).usd_per_hour is not None
        ]
        if not known:
            axis.plot([], [], color=colour, label=f"TPOT {format_duration(tpot)}: not on this fleet")
            continue
        asked = tpot == own_tpot
        axis.plot(
            [ttft for ttft, _ in known], [cost for _, cost in known], color=colour, marker="o", markersize=4,
            linewidth=2.2 if asked else 1.2, label=f"TPOT {format_duration(tpot)}" + (" (asked for)" if asked else ""),
        )  # fmt: skip
    own = found.at(own_ttft, own_tpot).usd_per_hour
    if own is not None:
        axis.plot([own_ttft], [own], marker="o", markersize=12, markerfacecolor="none", markeredgecolor="black", linestyle="none")
    axis.set_xscale("log")
    axis.set_xticks(found.ttft_seconds, [format_duration(ttft) for ttft in found.ttft_seconds])
    axis.minorticks_off()
    axis.set_ylim(0, 1.15 * axis.get_ylim()[1])
    axis.set_xlabel("TTFT target")
    axis.set_ylabel("USD per hour")
    axis.grid(visible=True, alpha=0.25)
    axis.legend(fontsize=8, framealpha=0.8, loc="lower left")


def _pools(axis: Any, ways: Ways) -> None:
    """Two bars for each shape that is planned with; no bar where a phase cannot run."""
    rows = [row for row in ways.rows if _offered(row)]
    for phase, shift in ((Phase.PREFILL, -0.2), (Phase.DECODE, 0.2)):
        shown = [(place, cost) for place, row in enumerate(rows) if (cost := row.usd_per_million(phase)) is not None]
        bars = axis.barh([place + shift for place, _ in shown], [cost for _, cost in shown], 0.38, color=_PHASE_COLOURS[phase])
        axis.bar_label(bars, [f" {per_million(cost)}" for _, cost in shown], fontsize=8)
        bars.set_label("prompt tokens" if phase is Phase.PREFILL else "output tokens")
    axis.set_yticks(range(len(rows)), [f"{row.pool} {row.shape}" for row in rows], fontsize=9)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    costs = [cost for row in rows for phase in Phase if (cost := row.usd_per_million(phase)) is not None]
    if costs:
        axis.set_xlim(10.0 ** math.floor(math.log10(min(costs) * 0.99)), 3.0 * max(costs))
    axis.set_xlabel("USD per million tokens")
    axis.grid(visible=True, axis="x", alpha=0.25)
    axis.legend(fontsize=8, framealpha=0.8, loc="lower right")


def _offered(row: ShapeRow) -> bool:
    return any(row.sides[phase].offered for phase in Phase)
