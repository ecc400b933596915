"""Growth on GPUs that are free now: fast, because nobody loses anything by it."""

from __future__ import annotations

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.free import FreeNow
from equipoise.decide.limits import room_in_caps
from equipoise.decide.settings import Settings
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import Move, MoveKind


def is_short(state: PhaseState, settings: Settings) -> bool:
    """Whether the phase needs more than it has, replicas that still start or pend included: they were ordered for this need.

    Counting what is coming is what stops the cascade 2, 4, 8, 16 while pods start.
    """
    if state.replicas() < state.floor:
        return True
    return state.needed is not None and state.needed > state.capacity(state.next) * (1.0 + settings.cover_tolerance)


def lacking(service: ServiceState) -> dict[Variant, int]:
    """New replicas that the plan asks for, per variant, beyond what flips can still settle.

    Where flips are possible the two phases of a pool and shape share their replicas: only what both together lack has to start.
    """
    result: dict[Variant, int] = {}
    for pool, shape in service.places():
        missing = {}
        surplus = 0
        for phase, state in service.phases.items():
            variant = Variant(service.service.key, phase, pool, shape)
            difference = state.wanted.get(variant, 0) - state.next.get(variant, 0)
            if difference > 0:
                missing[phase] = difference
            elif difference < 0 and state.automatic:
                surplus -= difference
        total = sum(missing.values())
        if service.service.flip_supported and len(missing) == 1:
            phase = next(iter(missing))
            if service.phases[phase].automatic and service.phases[phase.other].automatic:
                total = max(0, total - surplus)
        for phase in sorted(missing):
            count = min(missing[phase], total)
            if count:
                result[Variant(service.service.key, phase, pool, shape)] = count
    return result


def grow(service: ServiceState, free: FreeNow, now_seconds: float, settings: Settings) -> dict[Variant, int]:
    """Start replicas where GPUs are free. Returns those that found none: the business of a handover.

    A phase that has its need covered starts nothing, even if the plan would place its replicas elsewhere.
    """
    unmet: dict[Variant, int] = {}
    cooling = now_seconds - service.memory.last_grow_seconds < service.service.cooldown_grow_seconds
    floors = {phase: state.replicas() < state.floor for phase, state in service.phases.items()}
    short = {phase: is_short(state, settings) for phase, state in service.phases.items()}
    for variant, count in sorted(lacking(service).items(), key=lambda item: (item[0].phase, -item[1], item[0])):
        phase = variant.phase
        state = service.phases[phase]
        if not short[phase]:
            continue
        if cooling and not floors[phase] and state.fixed_count is None:
            left = service.memory.last_grow_seconds + service.service.cooldown_grow_seconds - now_seconds
            service.say(
                reasons.COOLING_DOWN, f"{phase.value} would grow by {count}: {left:.0f} s of the cooldown are left", phase
            )
            continue
        allowed = room_in_caps(service, variant, count)
        got = 0
        while got < allowed and free.take(variant):
            got += 1
        if got:
            state.next[variant] = state.next.get(variant, 0) + got
            _say_grown(service, state, variant, got, floors[phase])
        if got < count:
            unmet[variant] = count - got
            if got == allowed:
                service.capped.add(variant)
    return unmet


def _say_grown(service: ServiceState, state: PhaseState, variant: Variant, count: int, floor: bool) -> None:
    where = f"{count} × {variant.pool}/{variant.shape}"
    if state.fixed_count is not None:
        name = reasons.EXTERNAL_COUNT if state.policy.external_replicas is not None else reasons.FIXED_COUNT
        text = f"{state.phase.value} is set to {state.fixed_count}: {where} started"
    elif floor:
        name, text = reasons.MINIMUM_FIRST, f"{state.phase.value} is below its minimum of {state.floor}: {where} started"
    else:
        before = state.capacity(state.next) - state.rate(variant) * count
        name = reasons.GROWN
        text = (
            f"{state.phase.value} needs {state.needed or 0.0:,.0f} tokens/s and has {before:,.0f}, replicas on their way "
            f"included: {where} started on free GPUs"
        )
    service.moves.append(Move(MoveKind.GROW, None, variant, count, 0, text))
    service.say(name, text, state.phase)


def short_phases(service: ServiceState, settings: Settings) -> list[Phase]:
    """Phases that need more than they have."""
    return [phase for phase, state in sorted(service.phases.items()) if is_short(state, settings)]
