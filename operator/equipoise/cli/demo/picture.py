"""The run as a picture: both phases against their targets, replicas per pool and phase, moves marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from equipoise.api.identity import Phase
from equipoise.cli.demo.samples import Run
from equipoise.cli.demo.summary import latency

mpl.use("Agg")
from matplotlib import pyplot as plt

_COLOURS: Final[Mapping[Phase, Sequence[str]]] = {
    Phase.PREFILL: ("#c2410c", "#f97316", "#fdba74", "#fed7aa"),
    Phase.DECODE: ("#1e40af", "#3b82f6", "#93c5fd", "#bfdbfe"),
}
_TITLES: Final = {Phase.PREFILL: "TTFT", Phase.DECODE: "TPOT"}


def draw(run: Run, path: Path, title: str) -> None:
    """Write the picture to `path` (the ending chooses the format)."""
    figure, axes = plt.subplots(4, 1, figsize=(12, 10), sharex=True, height_ratios=(2, 2, 2, 1), layout="constrained")
    times = [sample.at_seconds for sample in run.samples]
    for axis, phase in zip(axes[:2], Phase, strict=True):
        _latency(axis, run, times, phase)
    _replicas(axes[2], run, times)
    axes[3].plot(times, [sample.requests_per_second for sample in run.samples], color="#475569", linewidth=1)
    axes[3].set_ylabel("requests/s")
    axes[3].set_xlabel("seconds since the traffic began")
    for axis in axes:
        axis.grid(visible=True, alpha=0.25)
        axis.margins(x=0)
        for at, _ in run.turns[1:]:
            axis.axvline(at, color="#64748b", linestyle=":", linewidth=1)
    for at, traffic in run.turns:
        axes[0].annotate(f" {traffic}", (at, 1.0), xycoords=("data", "axes fraction"), va="bottom", fontsize=9, color="#334155")
    _moves(axes[2], run)
    figure.suptitle(title, fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _latency(axis: Any, run: Run, times: Sequence[float], phase: Phase) -> None:
    target = run.targets[phase]
    values = [found if (found := latency(sample, phase)) is not None else float("nan") for sample in run.samples]
    axis.plot(times, values, color=_COLOURS[phase][0], linewidth=1.4, label=f"{_TITLES[phase]} at the target percentile")
    axis.axhline(target, color="#15803d", linestyle="--", linewidth=1, label=f"target {target:g} s")
    axis.fill_between(times, values, target, where=[value > target for value in values], color="#dc2626", alpha=0.25, step=None)
    axis.set_yscale("log")
    axis.set_ylabel(f"{_TITLES[phase]} (s)")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _replicas(axis: Any, run: Run, times: Sequence[float]) -> None:
    keys = sorted({key for sample in run.samples for key in sample.ready}, key=lambda key: (key[0] is Phase.DECODE, key[1]))
    colours = {phase: iter(_COLOURS[phase]) for phase in Phase}
    series = [[sample.ready.get(key, 0) for sample in run.samples] for key in keys]
    if series:
        axis.stackplot(
            times, *series, labels=[f"{phase.value} {pool}" for phase, pool in keys],
            colors=[next(colours[phase], "#94a3b8") for phase, _ in keys], step="post",
        )  # fmt: skip
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    axis.set_ylabel("ready replicas\n◆ flip  ▲ grow  ▼ shrink")


def _moves(axis: Any, run: Run) -> None:
    top = axis.get_ylim()[1]
    axis.set_ylim(0, top * 1.3)
    for number, move in enumerate(run.moves):
        side = move.receiver or move.donor
        colour = _COLOURS[Phase.PREFILL if side.startswith(Phase.PREFILL) else Phase.DECODE][0]
        marker = {"flip": "D", "grow": "^", "shrink": "v"}.get(move.kind, "s")
        height = top * (1.04 + 0.11 * (number % 2))
        axis.plot([move.at_seconds], [height], marker=marker, color=colour, markersize=7, linestyle="none")
        axis.annotate(
            f"{move.replicas}", (move.at_seconds, height), xytext=(0, 4), textcoords="offset points", fontsize=7, ha="center"
        )
