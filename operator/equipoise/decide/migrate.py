"""Moving to a better place when nothing presses: the plan would serve the same phase elsewhere for less."""

from __future__ import annotations

from equipoise.decide import reasons
from equipoise.decide.free import FreeNow
from equipoise.decide.growth import is_short, lacking
from equipoise.decide.limits import room_in_caps
from equipoise.decide.settings import Settings
from equipoise.decide.state import ServiceState
from equipoise.decide.types import Move, MoveKind


def migrate(service: ServiceState, free: FreeNow, now_seconds: float, settings: Settings) -> None:
    """Make before break: start the better replicas on free GPUs, and let the slow shrink take the dearer ones afterwards.

    The plan pays a price for every change, so it asks for this only when it saves more than that. Nothing happens before the wish
    has lasted for `cooldown_shrink_seconds` in calm: no phase short, none lagging, no move in flight.
    """
    name = "migrate.since"
    wishes = lacking(service)
    calm = not service.settling and not any(is_short(state, settings) or state.lag.lagging for state in service.phases.values())
    if not wishes or not calm or not all(service.phases[variant.phase].automatic for variant in wishes):
        return
    since = service.memory.extra.get(name, now_seconds)
    service.extra[name] = since
    if now_seconds - since < service.service.cooldown_shrink_seconds:
        return
    for variant, count in sorted(wishes.items()):
        state = service.phases[variant.phase]
        got = 0
        for _ in range(room_in_caps(service, variant, count)):
            if not free.take(variant):
                break
            got += 1
        if got:
            state.next[variant] = state.next.get(variant, 0) + got
            text = (
                f"{got} × {variant.pool}/{variant.shape} would serve {variant.phase.value} for less than what runs now: "
                "started first, the dearer ones go when they are no longer needed"
            )
            service.moves.append(Move(MoveKind.GROW, None, variant, got, 0, text))
            service.say(reasons.MIGRATING, text, variant.phase)
