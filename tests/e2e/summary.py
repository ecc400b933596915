"""The figures of a run as one file, and whether they are what was promised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.bounds import Bounds
from tests.e2e.crash import CrashPoints
from tests.e2e.moves import Moves
from tests.e2e.tally import failures, goodput, percentile, read_answers
from tests.e2e.world import TPOT_SECONDS, TTFT_SECONDS, Say, World

KINDS = ("grow", "shrink", "handover", "flip", "rollout")


def summarise(
    world: World, moves: Moves, points: CrashPoints, bounds: Bounds, troubles: list[str], seconds: float
) -> dict[str, Any]:
    """Read the clients' records and put everything together."""
    answers = [answer for path in world.records for answer in read_answers(path)]
    failed = failures(answers)
    steady = [answer for path in world.records if "surges" not in path.name for answer in read_answers(path)]
    true = goodput(steady, TTFT_SECONDS, TPOT_SECONDS)
    ttft = [answer.ttft for answer in answers if answer.ttft is not None]
    tpot = [answer.tpot for answer in answers if answer.tpot is not None]
    stretches = world.meter.placeholder_seconds
    return {
        "passed": not failed and not world.meter.violations and not troubles and not moves.wrong and not points.troubles,
        "requests": len(answers),
        "failed": len(failed),
        "failures": [answer.error for answer in failed[:20]],
        "moves": {kind: moves.done[kind] for kind in KINDS},
        "move_seconds": {
            kind: {"median": _rounded(percentile(found, 0.5)), "longest": _rounded(max(found))}
            for kind, found in moves.seconds.items()
        },
        "operator_restarts": world.operator_restarts,
        "budget_violations": len(world.meter.violations),
        "budget_violation_examples": world.meter.violations[:10],
        "pod_states_judged": world.meter.looks,
        "placeholders": {"count": len(stretches), "longest_seconds": _rounded(max(stretches, default=0.0))},
        "most_gpus_held": world.meter.most,
        "crash_points": points.run.total(),
        "crash_points_converged": points.converged.total(),
        "crash_points_by_kind": dict(points.run),
        "crash_point_troubles": points.troubles[:20],
        "writes_of_a_move": points.writes,
        "goodput_true": _rounded(true),
        "goodput_bounds_held": bool(bounds.samples) and bounds.held == bounds.samples,
        "goodput_under_surges": {
            "true": _rounded(bounds.true),
            "lowest_true_in_a_window": _rounded(bounds.lowest_true),
            "looks_with_bounds": bounds.samples,
            "looks_inside": bounds.held,
            "narrowest_bounds": _rounded(bounds.narrowest),
            "outside": bounds.examples[:10],
        },
        "ttft_seconds": {"p50": _rounded(percentile(ttft, 0.5)), "p95": _rounded(percentile(ttft, 0.95))},
        "tpot_seconds": {"p50": _rounded(percentile(tpot, 0.5)), "p95": _rounded(percentile(tpot, 0.95))},
        "targets": {"ttft_seconds": TTFT_SECONDS, "tpot_seconds": TPOT_SECONDS},
        "not_as_said": moves.wrong,
        "not_done": troubles,
        "seconds": round(seconds),
    }


def write(summary: dict[str, Any], path: Path, say: Say) -> None:
    """Write the file and say the main figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")
    say(f"{summary['requests']} requests, {summary['failed']} failed; moves {summary['moves']}; written to {path}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
