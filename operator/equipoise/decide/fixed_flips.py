"""Flips between phases whose counts somebody else owns: an edit that asks for more here and less there asks for a flip."""

from __future__ import annotations

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import Move, MoveKind


def flip_fixed(service: ServiceState) -> None:
    """Let running replicas of the phase that is to have fewer become replicas of the phase that is to have more.

    Without it the same edit would be a shrink and a grow: on a full pool, or at the service's own limit, a replica that serves
    would be drained and another one started cold. Only ready replicas flip, and only where the other phase may run too. What
    cannot flip is left to the shrinks and grows that follow.
    """
    if not service.service.flip_supported or len(service.phases) < 2:
        return
    for phase in sorted(service.phases):
        receiver, donor = service.phases[phase], service.phases[phase.other]
        count = min(_missing(receiver), -_missing(donor))
        if count > 0:
            _flip(service, receiver, donor, count)


def _missing(state: PhaseState) -> int:
    """Replicas that the fixed count asks for beyond those there are; negative when it asks for fewer, 0 when nobody fixed it."""
    return 0 if state.fixed_count is None else state.fixed_count - state.replicas()


def _flip(service: ServiceState, receiver: PhaseState, donor: PhaseState, count: int) -> None:
    for variant in sorted(donor.next, key=lambda item: (donor.wanted.get(item, 0) >= donor.next[item], item)):
        target = variant.with_phase(receiver.phase)
        status = donor.statuses.get(variant)
        able = min(donor.next[variant], status.ready if status is not None else 0)
        moved = min(count, able) if target in receiver.options else 0
        if moved <= 0:
            continue
        count -= moved
        donor.next[variant] -= moved
        receiver.next[target] = receiver.next.get(target, 0) + moved
        _say(service, variant, target, moved, receiver.fixed_count or 0, donor.fixed_count or 0)


def _say(service: ServiceState, donor: Variant, receiver: Variant, count: int, more: int, fewer: int) -> None:
    phase: Phase = receiver.phase
    text = f"{phase.value} is set to {more} and {donor.phase.value} to {fewer}"
    service.moves.append(Move(MoveKind.FLIP, donor, receiver, count, count, text))
    service.say(reasons.FLIPPED, f"{count} × {donor.phase.value} become {phase.value}: {text}", phase)
