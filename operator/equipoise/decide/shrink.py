"""Shrinking: slow, down to the highest need of the window, never a phase that lags."""

from __future__ import annotations

from dataclasses import replace

from equipoise.api.identity import Variant
from equipoise.decide import reasons
from equipoise.decide.demand import Demand
from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import short
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import Move, MoveKind


def shrink(service: ServiceState, now_seconds: float, settings: Settings) -> None:
    """Give back what no phase has needed for `cooldown_shrink_seconds`.

    Down to the *highest* need seen since less would have been enough, as the horizontal pod autoscaler's stabilisation window
    does it; taking the lowest is how a rival scaled down under load. Growing is cheap to regret, shrinking is not.
    """
    for phase, state in sorted(service.phases.items()):
        _shrink_fixed(service, state)
        if not state.automatic or state.needed is None:
            continue
        peak_name = f"{phase.value}.peak"
        if not _could_shrink(state, state.needed, settings):
            state.memory = replace(state.memory, low_since_seconds=0.0)
            continue
        since = state.memory.low_since_seconds
        if since <= 0.0:
            since = now_seconds
        peak = max(state.needed, service.memory.extra.get(peak_name, 0.0) if state.memory.low_since_seconds > 0.0 else 0.0)
        returning = _may_return(service, state, now_seconds, settings)
        if returning > max(peak, state.needed) and not _droppable(state, returning, settings):
            service.say(
                reasons.SHRINK_DELAYED,
                f"{phase.value} could be smaller (needs {state.needed:,.0f} of {state.capacity(state.next):,.0f} tokens/s), yet "
                f"the mix before needed {returning:,.0f} of it and may return, and its replicas cannot flip",
                phase,
            )
            state.memory = replace(state.memory, low_since_seconds=since)
            service.extra[peak_name] = short(peak)
            continue
        peak = max(peak, returning)
        state.memory = replace(state.memory, low_since_seconds=since)
        service.extra[peak_name] = short(peak)
        waited = now_seconds - since
        if waited < service.service.cooldown_shrink_seconds:
            service.say(
                reasons.SHRINK_DELAYED,
                f"{phase.value} could do with less (needs {state.needed:,.0f} of {state.capacity(state.next):,.0f} tokens/s): "
                f"waits {service.service.cooldown_shrink_seconds - waited:.0f} s more",
                phase,
            )
            continue
        if isinstance(state.demand, Demand) and state.demand.rising:
            service.say(reasons.SHRINK_DELAYED, f"{phase.value} gives nothing back while its demand rises", phase)
            continue
        if state.lag.lagging:
            service.say(reasons.LAGGING_KEPT, f"{phase.value} lags ({state.lag.value:.2f}) and gives no replica back", phase)
            continue
        _release(service, state, peak, settings)
        state.memory = replace(state.memory, low_since_seconds=now_seconds)
        service.extra[peak_name] = short(state.needed)


def _may_return(service: ServiceState, state: PhaseState, now_seconds: float, settings: Settings) -> float:
    """What the phase needed before the mix last turned, where it may turn back and replicas cannot flip; else 0.

    A replica saved for some minutes is paid for with an outage of a start-up time when the mix turns back. Not after a change of
    volume alone: a flash crowd leaves nothing to wait for.
    """
    extra = service.memory.extra
    if service.service.flip_supported or abs(extra.get("shift.direction", 0.0)) != 1.0:
        return 0.0
    if now_seconds - extra.get("shift.at", 0.0) > settings.return_dwell_factor * (
        service.regimes.mean_seconds or settings.dwell_seconds
    ):
        return 0.0
    count = state.replicas()
    return service.regimes.returning(state.phase, state.capacity(state.next) / count if count else 0.0) or 0.0


def _could_shrink(state: PhaseState, needed: float, settings: Settings) -> bool:
    return any(True for _ in _droppable(state, needed, settings))


def _droppable(state: PhaseState, needed: float, settings: Settings) -> list[Variant]:
    """Variants that could lose one replica: those the plan keeps fewer of first, then the least preferred and dearest."""
    floor = max(state.floor, 1 if needed > 0.0 else 0)
    if state.replicas() <= floor:
        return []
    capacity = state.capacity(state.next)

    def order(variant: Variant) -> tuple[bool, int, float, Variant]:
        option = state.options.get(variant)
        planned = state.next[variant] <= state.wanted.get(variant, 0)
        if option is None:
            return (planned, -1_000_000, 0.0, variant)
        return (planned, -option.preference, -option.price_usd_per_hour / option.capacity.tokens_per_second, variant)

    return [
        variant
        for variant in sorted((variant for variant, count in state.next.items() if count > 0), key=order)
        if capacity - state.rate(variant) >= needed * (1.0 + settings.shrink_margin)
    ]


def _release(service: ServiceState, state: PhaseState, peak: float, settings: Settings) -> None:
    released: dict[Variant, int] = {}
    before = state.capacity(state.next)
    while droppable := _droppable(state, peak, settings):
        variant = droppable[0]
        state.next[variant] -= 1
        released[variant] = released.get(variant, 0) + 1
    for variant, count in sorted(released.items()):
        text = (
            f"{state.phase.value} needed {peak:,.0f} tokens/s at most for {service.service.cooldown_shrink_seconds:.0f} s "
            f"and has {before:,.0f}: {count} × {variant.pool}/{variant.shape} given back"
        )
        service.moves.append(Move(MoveKind.SHRINK, variant, None, count, count, text))
        service.say(reasons.SHRUNK, text, state.phase)


def _shrink_fixed(service: ServiceState, state: PhaseState) -> None:
    """A count that someone else owns is followed at once."""
    fixed = state.fixed_count
    if fixed is None or state.replicas() <= fixed:
        return
    surplus = state.replicas() - fixed
    name = reasons.EXTERNAL_COUNT if state.policy.external_replicas is not None else reasons.FIXED_COUNT
    for variant in sorted(state.next, key=lambda variant: (state.next[variant] <= state.wanted.get(variant, 0), variant)):
        count = min(surplus, max(state.next[variant] - state.wanted.get(variant, 0), 0)) or 0
        if count:
            surplus -= count
            state.next[variant] -= count
            text = f"{state.phase.value} is set to {fixed}: {count} × {variant.pool}/{variant.shape} given back"
            service.moves.append(Move(MoveKind.SHRINK, variant, None, count, count, text))
            service.say(name, text, state.phase)
