"""One run as a picture: latencies of both phases against their targets, replicas with moves marked, goodput."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from equipoise.api.identity import Phase, ServiceKey
from equipoise.simulate.loop.score import RunResult

_BIN_SECONDS = 10.0
_COLOURS = {Phase.PREFILL: "#c2410c", Phase.DECODE: "#1e40af"}


def draw(result: RunResult, key: ServiceKey, path: Path, title: str) -> None:
    """Write the picture of one service to `path`; the ending chooses the format. ModuleNotFoundError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    score, moments = result.scores[key], result.moments[key]
    width = max(_BIN_SECONDS, result.seconds / 240.0)
    percent = score.targets.percentile
    lines = score.latencies_by_bin(width, result.seconds, percent)
    goodput = score.by_bin(width, result.seconds)
    times = [(position + 0.5) * width for position in range(len(goodput))]
    figure, axes = plt.subplots(4, 1, figsize=(12, 9), sharex=True, height_ratios=(2, 2, 2, 1), layout="constrained")
    targets = (score.targets.ttft_seconds, score.targets.tpot_seconds)
    for axis, phase, values, target, name in zip(axes[:2], Phase, lines, targets, ("TTFT", "TPOT"), strict=True):
        axis.plot(times, values, color=_COLOURS[phase], linewidth=1.3)
        axis.axhline(target, color="#15803d", linestyle="--", linewidth=1)
        axis.fill_between(times, values, target, where=[value > target for value in values], color="#dc2626", alpha=0.25)
        axis.set_yscale("log")
        axis.set_ylabel(f"{name}, p{percent:g} (s)")
    _replicas(axes[2], moments)
    axes[3].plot(times, [float("nan") if value is None else value for value in goodput], color="#475569", linewidth=1.2)
    axes[3].set_ylim(-0.05, 1.05)
    axes[3].set_ylabel("goodput")
    axes[3].set_xlabel("seconds since the traffic began")
    for axis in axes:
        axis.grid(visible=True, alpha=0.25)
        axis.margins(x=0)
        for at, _ in result.turns[key][1:]:
            axis.axvline(at, color="#64748b", linestyle=":", linewidth=1)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _replicas(axis: Any, moments: Any) -> None:
    times = [moment.at_seconds for moment in moments]
    for phase in Phase:
        ready = [moment.ready[phase] for moment in moments]
        coming = [moment.ready[phase] + moment.starting[phase] for moment in moments]
        axis.step(times, ready, where="post", color=_COLOURS[phase], linewidth=1.6, label=f"{phase.value}, ready")
        axis.step(
            times, coming, where="post", color=_COLOURS[phase], linewidth=0.8, linestyle=":", label=f"{phase.value}, starting too"
        )
    top = max((max(moment.ready.values()) for moment in moments), default=1) + 1
    for name, marker, colour in (("flips", "D", "#7e22ce"), ("starts", "^", "#15803d"), ("stops", "v", "#b91c1c")):
        at = [moment.at_seconds for moment in moments if getattr(moment, name)]
        axis.plot(at, [top] * len(at), marker, color=colour, markersize=4, linestyle="none", label=name)
    axis.set_ylabel("replicas")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
