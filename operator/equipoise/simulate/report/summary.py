"""Summaries and rows. Every figure is of the model of the engine; the scoring rule is printed with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from equipoise.simulate.engine.types import Outcome
from equipoise.simulate.loop.score import RULE, RunResult, ServiceScore, percentile

_PERCENTILES = (50.0, 95.0, 99.0)


def row(scenario: str, startup_seconds: float, flips: bool, result: RunResult) -> dict[str, Any]:
    """One line of a table, as plain JSON."""
    return {
        "scenario": scenario,
        "startup_seconds": startup_seconds,
        "flips": flips,
        "policy": result.policy,
        "detail": result.detail,
        "goodput": round(result.goodput, 5),
        "cost": round(result.cost_usd, 4),
        "gpu_hours": round(sum(result.gpu_hours.values()), 4),
        "moves_per_hour": round(result.moves_per_hour, 2),
        "seed": result.seed,
        "requests": result.requests,
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as text, one line each."""
    head = f"{'policy':24} {'goodput':>8} {'cost USD':>9} {'GPU-h':>7} {'moves/h':>8}  detail"
    lines = [
        f"{entry['policy']:24} {entry['goodput']:8.2%} {entry['cost']:9.2f} {entry['gpu_hours']:7.2f} "
        f"{entry['moves_per_hour']:8.1f}  {entry['detail']}".rstrip()
        for entry in rows
    ]
    return "\n".join([head, *lines])


def summary(result: RunResult) -> str:
    """One run for people."""
    lines = [
        f"policy {result.policy}, seed {result.seed}: {result.requests:,} requests in {result.seconds:,.0f} s of virtual time",
        f"goodput {result.goodput:.2%} ({RULE})",
        f"cost {result.cost_usd:.2f} USD: "
        + ", ".join(f"{hours:.2f} GPU-hours of {pool}" for pool, hours in sorted(result.gpu_hours.items())),
        f"{result.moves_per_hour:.1f} moves per hour: {result.flips} flips, {result.starts} starts, {result.stops} stops "
        "(a handover is a stop and a start)",
    ]
    for key, score in result.scores.items():
        lines += ["", f"{key}", *_latencies(score), *_outcomes(score), *_turns(result.turns.get(key, ()), score, result.seconds)]
    return "\n".join(lines)


def _latencies(score: ServiceScore) -> list[str]:
    lines = []
    for name, values, target in (
        ("TTFT", score.ttft, score.targets.ttft_seconds),
        ("TPOT", score.tpot, score.targets.tpot_seconds),
    ):
        found = [(percent, percentile(values, percent)) for percent in _PERCENTILES]
        text = ", ".join(f"p{percent:g} {value * 1e3:,.0f} ms" for percent, value in found if value is not None)
        lines.append(f"  {name} {text or 'none'} (target {target * 1e3:,.0f} ms)")
    return lines


def _outcomes(score: ServiceScore) -> list[str]:
    names = {
        Outcome.FINISHED: "answered",
        Outcome.REFUSED: "refused",
        Outcome.LOST: "lost",
        Outcome.ABORTED: "given up by the client",
        Outcome.PENDING: "not answered by the end",
    }
    text = ", ".join(f"{score.outcomes[outcome]:,} {name}" for outcome, name in names.items() if score.outcomes.get(outcome))
    return [f"  {text or 'no requests'}; {score.late_ttft:,} late first tokens, {score.late_tpot:,} slow answers"]


def _turns(turns: Sequence[tuple[float, str]], score: ServiceScore, seconds: float) -> list[str]:
    if len(turns) < 2:
        return []
    late = score.seconds_out_of_target(turns, seconds)
    return [
        f"  {late_seconds:4.0f} s out of target from {start:,.0f} s on ({name})"
        for (start, name), late_seconds in zip(turns, late, strict=True)
    ]
