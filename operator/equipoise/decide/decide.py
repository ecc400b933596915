"""One round: from the fleet and everything observed to a decision for every service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide import reasons
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.types import Allocation, AllocationProblem
from equipoise.decide.conclude import conclude
from equipoise.decide.fixed_flips import flip_fixed
from equipoise.decide.flips import flip
from equipoise.decide.free import FreeNow
from equipoise.decide.growth import grow
from equipoise.decide.handover import hand_over
from equipoise.decide.leftovers import release_leftovers
from equipoise.decide.limits import enforce_caps
from equipoise.decide.migrate import migrate
from equipoise.decide.options import FleetView
from equipoise.decide.pending import cancel_overdue
from equipoise.decide.performance import EnginePerformance, Performance
from equipoise.decide.prepare import prepare
from equipoise.decide.problem import allocation_problem
from equipoise.decide.relax import relaxed_target_seconds
from equipoise.decide.settings import Settings
from equipoise.decide.shrink import shrink
from equipoise.decide.state import ServiceState
from equipoise.decide.types import CapacityMode, DecideInput, Decision
from equipoise.decide.widest_first import widest_first
from equipoise.fleet.types import Fleet

Solver = Callable[[AllocationProblem], Allocation]
_ENGINES: Final = EnginePerformance()


def decide(
    fleet: Fleet, inputs: DecideInput, performance: Performance = _ENGINES, solve: Solver = allocate
) -> dict[ServiceKey, Decision]:
    """A decision for every service, in the order of their keys. `solve` plans the allocation; any solver of the problem will do.

    Pure: equal arguments give equal decisions, whatever the order of the services. ValueError only for unknown settings.
    1. What is known of every service (`prepare`). 2. One plan for all (`allocate`). 3. Pods that never found a node are given up,
    running replicas flip, replicas start on free GPUs, donors make room, and what nobody needs is given back, in this order:
    from the cheapest move to the dearest, so that a dear one is only made for what the cheap ones leave.
    """
    settings = Settings.from_mapping(inputs.settings)
    now = inputs.now_seconds
    view = FleetView(fleet)
    states = {
        service.key: prepare(service, inputs, view, performance, settings)
        for service in sorted(inputs.services, key=lambda s: s.key)
    }
    for state in states.values():
        if state.active:
            enforce_caps(state)
            cancel_overdue(state, now, settings)
    allocation = solve(allocation_problem(fleet, states.values(), now, settings))
    _note_plan(states, allocation)
    if any(state.service.mode is CapacityMode.RECOMMEND for state in states.values()):
        advice = solve(allocation_problem(fleet, states.values(), now, settings, advice=True))
        _note_plan({key: state for key, state in states.items() if state.service.mode is CapacityMode.RECOMMEND}, advice)
    _move(fleet, states, inputs, settings)
    for state in states.values():
        _say_what_target_would_do(state, view, performance)
    return {key: conclude(state, now) for key, state in states.items()}


def _say_what_target_would_do(state: ServiceState, fleet: FleetView, performance: Performance) -> None:
    """Complete what would help a phase that is short: the target that its replicas would meet."""
    for position, shortfall in enumerate(state.shortfalls):
        phase = state.phases[shortfall.phase]
        if phase.needed is None or shortfall.missing_tokens_per_second <= 0.0:
            continue
        service = state.service
        seconds = relaxed_target_seconds(
            fleet,
            performance,
            service.model,
            service.targets,
            state.workload,
            phase.phase,
            phase.wanted,
            phase.needed,
            service.shares_arrivals,
        )
        if seconds is not None:
            name = "TTFT" if phase.phase is Phase.PREFILL else "TPOT"
            text = f"{shortfall.message}, or a {name} target of {seconds * 1000:,.0f} ms"
            state.shortfalls[position] = replace(shortfall, message=text)


def _note_plan(states: Mapping[ServiceKey, ServiceState], allocation: Allocation) -> None:
    wanted: dict[ServiceKey, dict[Variant, int]] = {}
    for variant, count in allocation.replicas.items():
        wanted.setdefault(variant.service, {})[variant] = count
    for key, state in states.items():
        for phase, entry in state.phases.items():
            entry.wanted = {variant: count for variant, count in wanted.get(key, {}).items() if variant.phase is phase}
    for shortfall in allocation.shortfalls:
        concerned = states.get(shortfall.service)
        if concerned is not None:
            concerned.shortfalls.append(shortfall)


def _move(fleet: Fleet, states: Mapping[ServiceKey, ServiceState], inputs: DecideInput, settings: Settings) -> None:
    now = inputs.now_seconds
    order = sorted(
        (state for state in states.values() if state.active),
        key=lambda state: (-state.service.priority, state.service.created_seconds, state.service.key),
    )
    free = FreeNow(fleet, states.values())
    for state in order:
        flip_fixed(state)
        flip(state, now, settings)
    unmet: dict[ServiceKey, dict[Variant, int]] = {}
    for state in order:
        missing = grow(state, free, now, settings)
        if missing:
            unmet[state.service.key] = missing
        migrate(state, free, now, settings)
    widest_first(states, fleet)
    hand_over(states, unmet, fleet, free, inputs.interval_seconds, settings)
    for state in order:
        release_leftovers(state, settings)
        shrink(state, now, settings)
    for key, state in states.items():
        if key not in unmet:
            state.calm()
    for state in states.values():
        if state.service.mode is CapacityMode.RECOMMEND:
            state.say(reasons.RECOMMEND_ONLY, "mode Recommend: nothing is changed")
