"""What a run came to: shifts and whether both targets were met again, moves, time in target, budget. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from equipoise.api.identity import Phase
from equipoise.cli.demo.samples import Run, Sample

SETTLED_SECONDS: Final = 10.0  # a target counts as restored when it stays met for this long
_PHASE_WORD: Final = {Phase.PREFILL: "TTFT", Phase.DECODE: "TPOT"}


def latency(sample: Sample, phase: Phase) -> float | None:
    """The latency by which a phase is judged."""
    return sample.ttft_seconds if phase is Phase.PREFILL else sample.tpot_seconds


def summarise(run: Run) -> dict[str, Any]:
    """The summary as plain JSON; its keys are a contract."""
    return {
        "shifts": [
            _shift(run, start, end, traffic) for (start, traffic), end in zip(run.turns[1:], _ends(run), strict=True)
        ],
        "moves": [
            {"at_seconds": round(move.at_seconds, 1), "kind": move.kind, "donor": move.donor, "receiver": move.receiver,
             "replicas": move.replicas, "reason": move.reason}
            for move in run.moves
        ],
        "time_in_target": {phase.value: _share_in_target(run.samples, run, phase) for phase in Phase},
        "gpus_peak": max((sum(sample.gpus_bound.values()) for sample in run.samples), default=0),
        "gpus_limit": sum(run.pools.values()),
        "violations": list(violations(run)),
        "requests": {
            "completed": run.samples[-1].completed if run.samples else 0,
            "refused": run.samples[-1].refused if run.samples else 0,
            "lost": run.samples[-1].lost if run.samples else 0,
        },
        "seconds": round(run.samples[-1].at_seconds, 1) if run.samples else 0.0,
    }  # fmt: skip


def violations(run: Run) -> Iterable[str]:
    """Everything that must never happen: more GPUs than a pool has, a phase without a ready replica, a lost request."""
    seen_ready: set[Phase] = set()
    for sample in run.samples:
        for pool, bound in sample.gpus_bound.items():
            if bound > run.pools.get(pool, 0):
                yield f"{sample.at_seconds:.1f} s: {bound} GPUs bound in pool {pool}, which has {run.pools.get(pool, 0)}"
        for phase in Phase:
            ready = sum(count for (found, _), count in sample.ready.items() if found is phase)
            if ready:
                seen_ready.add(phase)
            elif phase in seen_ready:
                yield f"{sample.at_seconds:.1f} s: no {phase.value} replica is ready"
    if run.samples and run.samples[-1].lost:
        yield f"{run.samples[-1].lost} requests were lost"


def _ends(run: Run) -> list[float]:
    last = run.samples[-1].at_seconds if run.samples else 0.0
    return [start for start, _ in run.turns[2:]] + [last] if len(run.turns) > 1 else []


def _shift(run: Run, start: float, end: float, traffic: str) -> dict[str, Any]:
    """One turn of the traffic: which phase fell behind, for how long, and whether both targets were met again."""
    window = [sample for sample in run.samples if start <= sample.at_seconds < end]
    out = {phase: _seconds_out(window, run, phase) for phase in Phase}
    late = max(out, key=lambda phase: out[phase]) if any(out.values()) else None
    restored = _restored_at(window, run)
    return {
        "at_seconds": round(start, 1),
        "traffic": traffic,
        "lagging_phase": lagging.value if (lagging := _lagging(window, run, late)) else None,
        "late": {phase.value: round(seconds, 1) for phase, seconds in out.items()},
        "restored": restored is not None,
        "seconds_out_of_target": round(out[late], 1) if late else 0.0,
        "restored_after_seconds": None if restored is None else round(restored - start, 1),
    }


def _lagging(samples: Sequence[Sample], run: Run, late: Phase | None) -> Phase | None:
    """The phase that the operator most often named while a target was missed; where it named none, the one that was late.

    The two differ when decode has no room: the first token is then late, and prefill is not to blame.
    """
    missed = [sample for sample in samples if any(_out_of_target(sample, run, phase) for phase in Phase)]
    named = Counter(sample.lagging for sample in missed if sample.lagging is not None)
    return named.most_common(1)[0][0] if named else late


def _out_of_target(sample: Sample, run: Run, phase: Phase) -> bool:
    found = latency(sample, phase)
    return found is not None and found > run.targets[phase]


def _seconds_out(samples: Sequence[Sample], run: Run, phase: Phase) -> float:
    return sum(after.at_seconds - before.at_seconds for before, after in pairwise(samples) if _out_of_target(before, run, phase))


def _restored_at(samples: Sequence[Sample], run: Run) -> float | None:
    """From when on, after the first miss, both targets were met for at least SETTLED_SECONDS without a break.

    None when that never happened; the start of the window when nothing was missed.
    """
    since: float | None = None
    missed = [number for number, sample in enumerate(samples) if any(_out_of_target(sample, run, phase) for phase in Phase)]
    if not missed:
        return samples[0].at_seconds if samples else None
    for sample in samples[missed[0] :]:
        if any(_out_of_target(sample, run, phase) for phase in Phase):
            since = None
        elif since is None:
            since = sample.at_seconds
        if since is not None and sample.at_seconds - since >= SETTLED_SECONDS:
            return since
    return None


def _share_in_target(samples: Sequence[Sample], run: Run, phase: Phase) -> float:
    judged = [sample for sample in samples if latency(sample, phase) is not None]
    return round(sum(not _out_of_target(sample, run, phase) for sample in judged) / len(judged), 4) if judged else 0.0


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    lines = ["Summary"]
    for shift in summary["shifts"]:
        lag = shift["lagging_phase"]
        what = "no phase fell behind"
        if lag:
            late = ", ".join(f"{_PHASE_WORD[Phase(name)]} {seconds:.0f} s" for name, seconds in shift["late"].items() if seconds)
            what = f"out of target: {late} ({lag} lagged)"
        ending = f"both targets met again after {shift['restored_after_seconds']:.0f} s" if shift["restored"] else "not restored"
        lines.append(f"  {shift['at_seconds']:5.0f} s  turn to {shift['traffic']}: {what}; {ending}")
    kinds: dict[str, int] = {}
    for move in summary["moves"]:
        kinds[move["kind"]] = kinds.get(move["kind"], 0) + move["replicas"]
    moved = ", ".join(f"{count} by {kind}" for kind, count in sorted(kinds.items())) or "none"
    lines.append(f"  replicas moved: {moved}")
    share = summary["time_in_target"]
    lines.append(f"  time in target: TTFT {share['prefill']:.1%}, TPOT {share['decode']:.1%}")
    lines.append(f"  GPUs: at most {summary['gpus_peak']} of {summary['gpus_limit']} held at once")
    requests = summary["requests"]
    lines.append(f"  requests: {requests['completed']} completed, {requests['refused']} refused, {requests['lost']} lost")
    lines += [f"  VIOLATION: {text}" for text in summary["violations"]]
    return "\n".join(lines)
