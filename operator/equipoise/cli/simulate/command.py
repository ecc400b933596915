"""The command: run, print, and write a report where asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from equipoise.cli.simulate.world import RecordingOptions, adjusted, named_world, recorded_world, traffic_world
from equipoise.simulate.loop.score import RunResult
from equipoise.simulate.loop.setup import SignalSource, World
from equipoise.simulate.report.intervals import table_of_means
from equipoise.simulate.report.picture import draw
from equipoise.simulate.report.summary import row, summary, table
from equipoise.simulate.rivals.registry import run_named
from equipoise.simulate.scenarios.catalogue import SCENARIOS


def run_simulate(
    name: str | None,
    *,
    traces: Sequence[Path],
    traffic: str | None,
    pools: Sequence[str],
    policies: Sequence[str],
    ttft: str,
    tpot: str,
    model: str,
    seed: int,
    startup: float | None,
    flips: bool,
    bounded: bool,
    interval: float | None,
    source: str | None,
    data: Path | None,
    report: Path | None,
    recording: RecordingOptions | None = None,
    seeds: int = 1,
) -> int:
    """0 when all ran; 2 when the arguments make no sense, which is said on standard error."""
    try:
        if recording is not None:
            if name is not None or traces or traffic is not None:
                raise ValueError("give one of a scenario, --trace, --traffic and --from-prometheus")
            world: World | None = recorded_world(recording, pools or ("H100:8",), ttft, tpot, model, typer.echo)
        else:
            world = _world(name, traces, traffic, pools, ttft, tpot, model, data)
        if world is None:
            typer.echo("\n".join(f"{item.name:12} {item.title}{' (slow)' if item.heavy else ''}" for item in SCENARIOS.values()))
            return 0
        world = adjusted(world, startup, flips, bounded, interval, None if source is None else SignalSource(source))
        if seeds < 1:
            raise ValueError(f"--seeds {seeds}: at least one run is needed")
        names = policies or ("equipoise",)
        results = [run_named(policy, world, number) for policy in names for number in range(seed, seed + seeds)]
    except ValueError as error:
        typer.echo(str(error), err=True)
        return 2
    title = name or ("traffic" if recording is None else f"recorded {recording.service}")
    typer.echo("Simulated: engines, cluster and metrics are a model; the decisions of `equipoise` are the operator's own.\n")
    for result in results if seeds == 1 else ():
        typer.echo(summary(result) + "\n")
    rows = [row(title, world.startup_seconds, world.flips, result) for result in results]
    if seeds > 1:
        typer.echo(table_of_means(rows))
    elif len(results) > 1:
        typer.echo(table(rows))
    if report is not None:
        _write(report, title, results, rows, seeds)
    return 0


def _world(
    name: str | None,
    traces: Sequence[Path],
    traffic: str | None,
    pools: Sequence[str],
    ttft: str,
    tpot: str,
    model: str,
    data: Path | None,
) -> World | None:
    if sum((name is not None, bool(traces), traffic is not None)) > 1:
        raise ValueError("give one of a scenario, --trace and --traffic")
    if name is not None:
        return named_world(name, data)
    if traces:
        traffic = ",".join(f"trace:{path}" for path in traces)
    return None if traffic is None else traffic_world(traffic, pools or ("H100:8",), ttft, tpot, model)


def _write(folder: Path, title: str, results: Sequence[RunResult], rows: Sequence[dict[str, object]], seeds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [*([table_of_means(rows)] if seeds > 1 else ()), *(summary(result) for result in results)]
    (folder / "summary.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    (folder / "rows.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    try:
        for result in results:
            for key in result.scores:
                suffix = f"-{key.name}" if len(result.scores) > 1 else ""
                suffix += f"-seed{result.seed}" if seeds > 1 else ""
                heading = f"{title}: {result.policy}, goodput {result.goodput:.2%}, {result.cost_usd:.2f} USD (simulated)"
                draw(result, key, folder / f"{result.policy}{suffix}.png", heading)
    except ModuleNotFoundError:
        typer.echo("no pictures: matplotlib is not installed (pip install 'equipoise[report]')", err=True)
    typer.echo(f"\nreport in {folder}")
