"""How the control law does against fixed allocations, an oracle and other controllers: `make bench-control`.

Everything is simulated: the engines are those of `simulate.engine`, the decisions of `equipoise` are the operator's own. Writes
build/bench/control.json and a picture of every run of `equipoise`. By default one seed and the scenarios that take seconds;
FULL=1 takes all scenarios, five seeds and every start-up time. TRACES=FOLDER replays recorded traces where scenarios know them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from equipoise.simulate.loop.score import RULE
from equipoise.simulate.report.intervals import interval
from equipoise.simulate.report.picture import draw
from equipoise.simulate.report.summary import row
from equipoise.simulate.rivals.registry import POLICIES, run_named
from equipoise.simulate.rivals.search import frontier
from equipoise.simulate.scenarios.catalogue import SCENARIOS, scenario

OUTPUT = Path("build/bench")
SHORT = ("alt300", "alt900", "chatcode300", "S2", "S7")
SHORT_RIVALS = ("naive", "hpa-latency", "heteroscale", "keda-tokens", "dynamo-sla")
MOVES = ((True, 60.0), (False, 60.0))  # engines that flip; engines that do not, with this start-up time
FULL_MOVES = ((True, 60.0), (True, 300.0), (False, 0.0), (False, 60.0), (False, 120.0), (False, 300.0))


@dataclass(frozen=True)
class Job:
    """One row, or for `static` and `oracle` the rows that hold for every start-up time."""

    scenario: str
    policy: str
    flips: bool
    startup_seconds: float
    seed: int
    traces: str
    pictures: bool


def work(job: Job) -> list[dict[str, Any]]:
    """Run one job in its own process."""
    world = scenario(job.scenario).build(Path(job.traces) if job.traces else None)
    if job.policy == "best-static":
        found = frontier(world, job.seed, bounded=job.flips)
        return [row(job.scenario, job.startup_seconds, True, result) for result in found]
    world = replace(world, flips=job.flips, startup_seconds=job.startup_seconds)
    result = run_named(job.policy, world, job.seed)
    if job.pictures and job.policy == "equipoise":
        kind = "flips" if job.flips else f"cold{job.startup_seconds:g}"
        for key in result.scores:
            name = f"control-{job.scenario}-{kind}-{key.name}.png"
            title = f"{job.scenario}, {kind}: equipoise, goodput {result.goodput:.2%}, {result.cost_usd:.2f} USD (simulated)"
            draw(result, key, OUTPUT / name, title)
    return [row(job.scenario, job.startup_seconds, job.flips, result)]


def jobs(
    names: Sequence[str], rivals: Sequence[str], moves: Sequence[tuple[bool, float]], seeds: int, traces: str
) -> Iterator[Job]:
    """The slowest first, so that both processes end together."""
    for seed in range(seeds):
        for name in names:
            yield Job(name, "best-static", True, 0.0, seed, traces, False)
        for name in names:
            yield Job(name, "oracle", True, 0.0, seed, traces, False)
            for flips, startup in moves:
                yield Job(name, "equipoise", flips, startup, seed, traces, seed == 0)
            startups = sorted({startup for flips, startup in moves if not flips})
            for rival in rivals:
                for startup in startups:
                    flipping = rival.endswith("-flips")
                    yield Job(name, rival, flipping, startup, seed, traces, False)


def verdict(rows: list[dict[str, Any]], name: str) -> str:
    """One scenario's table: means over seeds ± 95 % interval; fixed allocations and the oracle hold for every start-up time."""
    lines = [f"\n{name}: {SCENARIOS[name].title}"]
    lines.append(f"  {'policy':22} {'moves':8} {'goodput':>8} {'±':>6} {'cost USD':>9} {'moves/h':>8}  detail")
    groups: dict[tuple[str, bool, float], list[dict[str, Any]]] = {}
    for entry in rows:
        if entry["scenario"] == name and entry["policy"] != "static":
            groups.setdefault((entry["policy"], entry["flips"], entry["startup_seconds"]), []).append(entry)
    for (policy, flips, startup), entries in groups.items():
        goodputs = [entry["goodput"] for entry in entries]
        spread = interval(goodputs).half_width or 0.0
        kind = "-" if policy in ("best-static", "oracle") else "flips" if flips else f"{startup:.0f} s"
        detail = entries[0]["detail"]
        lines.append(
            f"  {policy:22} {kind:8} {mean(goodputs):8.2%} {spread:6.2%} {mean(e['cost'] for e in entries):9.2f} "
            f"{mean(e['moves_per_hour'] for e in entries):8.1f}  {detail}"
        )
        if policy == "equipoise":
            lines.append("  " + _against_static(rows, name, entries))
    return "\n".join(lines)


def _against_static(rows: list[dict[str, Any]], name: str, entries: list[dict[str, Any]]) -> str:
    differences, splits = [], []
    for entry in entries:
        fixed = [
            other
            for other in rows
            if other["scenario"] == name and other["policy"] == "static" and other["seed"] == entry["seed"]
            and other["cost"] <= entry["cost"] * 1.005
        ]  # fmt: skip
        if fixed:
            best = max(fixed, key=lambda other: other["goodput"])
            differences.append(entry["goodput"] - best["goodput"])
            splits.append(f"{best['detail']} {best['goodput']:.2%}")
    if not differences:
        return "  no fixed allocation is as cheap"
    return f"  {mean(differences) * 100:+.1f} points against the best fixed allocation at no more cost ({splits[0]})"


def main() -> None:
    """Run the jobs in as many processes as there are cores, print the tables, write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", default=bool(os.environ.get("FULL")))
    parser.add_argument("--scenarios", default="", help="comma-separated; by default the short list, or all with --full")
    parser.add_argument("--policies", default="", help="comma-separated rivals")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--traces", default=os.environ.get("TRACES", ""))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = tuple(filter(None, options.scenarios.split(","))) or (tuple(SCENARIOS) if options.full else SHORT)
    rivals = tuple(filter(None, options.policies.split(","))) or (
        tuple(policy for policy in POLICIES if policy != "equipoise") if options.full else SHORT_RIVALS
    )
    seeds = options.seeds or (5 if options.full else 1)
    moves = FULL_MOVES if options.full else MOVES
    todo = list(jobs(names, rivals, moves, seeds, options.traces))
    print(f"Simulated, not measured on hardware. {RULE[0].upper()}{RULE[1:]}.")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=8) as pool:
        for number, found in enumerate(pool.imap_unordered(work, todo), 1):
            rows += found
            print(f"\r{number} of {len(todo)} after {time.monotonic() - begin:.0f} s", end="", flush=True)
    order = {policy: position for position, policy in enumerate(("equipoise", "best-static", "oracle", *rivals))}
    rows.sort(
        key=lambda r: (names.index(r["scenario"]), order.get(r["policy"], 99), not r["flips"], r["startup_seconds"], r["seed"])
    )
    for name in names:
        print(verdict(rows, name))
    (OUTPUT / "control.json").write_text(
        json.dumps({"rule": RULE, "simulated": True, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"\n{time.monotonic() - begin:.0f} s; rows in {OUTPUT / 'control.json'}")


if __name__ == "__main__":
    main()
