"""Flips: running replicas change phase. The cheapest move, so the one with the fastest trigger."""

from __future__ import annotations

from dataclasses import dataclass

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.settings import Settings
from equipoise.decide.state import PhaseState, ServiceState, figure
from equipoise.decide.types import Move, MoveKind

_FLIP_DEADLINE_SECONDS = 60.0  # after that a flip that was decided but not seen is no reason to wait any longer


@dataclass(slots=True)
class _Side:
    """One phase while flips are tried out."""

    state: PhaseState
    work: float
    capacity: float
    replicas: int

    @property
    def load(self) -> float:
        if self.work <= 0.0:
            return 0.0
        return self.work / self.capacity if self.capacity > 0.0 else float("inf")


def flip(service: ServiceState, now_seconds: float, settings: Settings) -> None:
    """Move running replicas between the phases so that the larger utilisation becomes smallest, all the way at once.

    Act from `flip_utilisation` on, when the larger utilisation falls by at least `flip_gain`, at the first sight: control notes,
    lessons 1 to 3 (one at a time 79.4 %, all at once 85.0 %, confirmed once 90.3 % on the same traffic). Only ready replicas
    flip, since only they take load at once. The split that minimises the larger utilisation is also the best one when both
    phases are short, and from there no flip gains anything: that is what keeps an overloaded service from shuffling.
    """
    sides = _sides(service)
    if sides is None:
        return
    if _in_flight(service, now_seconds):
        service.say(reasons.MOVE_IN_FLIGHT, "the last flips are still being carried out")
        return
    before = max(side.load for side in sides.values())
    if before < settings.flip_utilisation:
        return
    worse = max(sorted(sides), key=lambda phase: sides[phase].load)
    receiver, donor = sides[worse], sides[worse.other]
    if donor.state.lag.lagging and donor.state.memory.short_rounds >= 2 and not receiver.load > 1.0:
        service.say(
            reasons.LAGGING_KEPT,
            f"{donor.state.phase.value} misses its target (lag {donor.state.lag.value:.2f}) although its load is "
            f"{donor.load:.2f}: it gives nothing away",
            donor.state.phase,
        )
        return
    steps = _best_steps(receiver, donor)
    after = max(receiver.load, donor.load)
    if not steps:
        return
    if not service.service.flip_supported:
        service.say(
            reasons.FLIP_UNSUPPORTED,
            f"{sum(steps.values())} replicas changing to {worse.value} would bring the larger utilisation from {figure(before)} "
            f"to {figure(after)}, but they cannot: {service.service.flip_reason or 'the engine fixes the role at the start'}",
            worse,
        )
        return
    if after > before * (1.0 - settings.flip_gain):
        service.say(
            reasons.BEST_SPLIT,
            f"the larger utilisation {figure(before)} ({worse.value}) would fall to {figure(after)} at best, by less than "
            f"{settings.flip_gain:.0%}",
            worse,
        )
        return
    _apply(service, receiver.state, donor.state, steps, before, after)


def _sides(service: ServiceState) -> dict[Phase, _Side] | None:
    """Both phases, when both may be changed and both are known."""
    sides = {}
    for phase, state in service.phases.items():
        work = state.urgent
        if not state.automatic or work is None or not state.options:
            return None
        sides[phase] = _Side(state, work, state.serving, state.replicas())
    return sides if len(sides) == 2 else None


def _best_steps(receiver: _Side, donor: _Side) -> dict[Variant, int]:
    """Flips, by donor variant, until one more would not lower the larger load. Changes the sides to the state after."""
    able = {
        variant: min(donor.state.next.get(variant, 0), donor.state.statuses[variant].ready)
        for variant in sorted(donor.state.next)
        if variant in donor.state.statuses and receiver.state.rate(variant.with_phase(receiver.state.phase)) > 0.0
    }
    steps: dict[Variant, int] = {}
    maximum = receiver.state.policy.maximum
    while donor.replicas > max(1, donor.state.floor) and (maximum is None or receiver.replicas < maximum):
        best: tuple[float, float, Variant] | None = None
        for variant, count in able.items():
            if count <= 0:
                continue
            gained = receiver.capacity + receiver.state.rate(variant.with_phase(receiver.state.phase))
            left = donor.capacity - donor.state.rate(variant)
            load = max(
                receiver.work / gained if gained > 0.0 else float("inf"),
                (donor.work / left if left > 0.0 else float("inf")) if donor.work > 0.0 else 0.0,
            )
            # Comparative advantage decides between equals: most gained for the receiver per token/s the donor loses.
            exchange = -(gained - receiver.capacity) / max(1e-9, donor.capacity - left)
            if best is None or (load, exchange, variant) < best:
                best = (load, exchange, variant)
        if best is None or best[0] >= max(receiver.load, donor.load) * (1.0 - 1e-9):
            break
        variant = best[2]
        able[variant] -= 1
        steps[variant] = steps.get(variant, 0) + 1
        receiver.capacity += receiver.state.rate(variant.with_phase(receiver.state.phase))
        donor.capacity -= donor.state.rate(variant)
        receiver.replicas += 1
        donor.replicas -= 1
    return steps


def _apply(
    service: ServiceState, receiver: PhaseState, donor: PhaseState, steps: dict[Variant, int], before: float, after: float
) -> None:
    text = f"utilisation {figure(before)} of {receiver.phase.value} falls to {figure(after)}"
    for variant, count in sorted(steps.items()):
        target = variant.with_phase(receiver.phase)
        donor.next[variant] -= count
        receiver.next[target] = receiver.next.get(target, 0) + count
        service.moves.append(Move(MoveKind.FLIP, variant, target, count, count, text))
    total = sum(steps.values())
    service.say(
        reasons.FLIPPED,
        f"{total} × {donor.phase.value} become {receiver.phase.value}: the larger {text}",
        receiver.phase,
    )


def _in_flight(service: ServiceState, now_seconds: float) -> bool:
    """Flips decided in an earlier round that the pods do not show yet."""
    if now_seconds - service.memory.last_flip_seconds > _FLIP_DEADLINE_SECONDS:
        return False
    for state in service.phases.values():
        for variant, status in state.statuses.items():
            over = status.ready + status.starting > state.current.get(variant, 0)
            other = service.phases[variant.phase.other]
            twin = variant.with_phase(variant.phase.other)
            there = other.statuses.get(twin)
            bound = there.ready + there.starting if there is not None else 0
            if over and bound < other.current.get(twin, 0):
                return True
    return False
