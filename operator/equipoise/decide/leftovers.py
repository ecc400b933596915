"""Replicas that nothing describes any more: their pool is gone, or it no longer meets the target."""

from __future__ import annotations

from equipoise.decide import reasons
from equipoise.decide.settings import Settings
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import Move, MoveKind


def release_leftovers(service: ServiceState, settings: Settings) -> None:
    """Let them go when others serve in their place, or when they cannot run at all; never the last that serve.

    A pool may be missing from one reading of the fleet only, so replicas that have running pods stay until others cover the
    need. Where no pool can serve the phase they stay for good: a slow answer is better than none.
    """
    for phase, state in sorted(service.phases.items()):
        if state.fixed_count is not None:
            continue
        for variant, count in sorted(state.next.items()):
            if count <= 0 or variant in state.options:
                continue
            status = state.statuses.get(variant)
            running = 0 if status is None else status.ready + status.starting
            gone = variant.pool not in service.gpu_prices and running == 0
            if not gone and not _replaced(state, settings):
                continue
            state.next[variant] = 0
            why = "the pool is gone" if gone else "others serve in their place"
            text = f"{count} × {variant.pool}/{variant.shape} of {phase.value} no longer meet the targets: given back, {why}"
            service.moves.append(Move(MoveKind.SHRINK, variant, None, count, count, text))
            service.say(reasons.LEFTOVER_RELEASED, text, phase)


def _replaced(state: PhaseState, settings: Settings) -> bool:
    serving = sum(status.ready for variant, status in state.statuses.items() if variant in state.options)
    covered = state.needed is not None and state.serving * (1.0 + settings.cover_tolerance) >= state.needed
    return covered and serving >= max(1, state.floor)
