"""What a round knows of one service before it decides: lengths, options, demand, lag, trim and need."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase, Variant
from equipoise.decide import demand as demand_rules
from equipoise.decide import reasons
from equipoise.decide.calibration import Calibrated, Window, calibrate_variants
from equipoise.decide.demand import Demand, DemandUnknown, estimate_demand
from equipoise.decide.domain import keep_to_one_domain
from equipoise.decide.lag import Lag, estimate_lags
from equipoise.decide.memory import PhaseMemory, ServiceMemory
from equipoise.decide.options import GRID, FleetView, PhaseOptions, infeasible, service_options
from equipoise.decide.performance import Performance
from equipoise.decide.settings import Settings
from equipoise.decide.sizing import needed_tokens_per_second
from equipoise.decide.state import PhaseState, ServiceState, current_counts
from equipoise.decide.trim import adjust_trim
from equipoise.decide.types import DecideInput, Scaling, ServiceInput, VariantOption
from equipoise.decide.workload import estimate_workload
from equipoise.decide.worth import note_shift, regimes
from equipoise.observe.starvation import decode_starves_prefill
from equipoise.observe.types import ServiceObservation
from equipoise.perf.types import Refusal, Workload


def prepare(
    service: ServiceInput, inputs: DecideInput, fleet: FleetView, performance: Performance, settings: Settings
) -> ServiceState:
    """The state of one service at the start of a round."""
    memory = inputs.memories.get(service.key, ServiceMemory())
    observation = inputs.observations.get(service.key)
    now = inputs.now_seconds
    window = observation.window_seconds if observation is not None else inputs.interval_seconds
    estimate = estimate_workload(observation, memory.extra, now, settings)
    starvation = None if observation is None else decode_starves_prefill(observation)
    starves = starvation is not None and starvation.decode_starves
    counts = current_counts(service, memory)
    settling = _settling(service, memory, now, window, inputs.interval_seconds)
    found = _calibrate(service, observation, memory, fleet, estimate.workload, performance, settling, now)
    speeds = {variant: speed.factor for variant, speed in found.speeds.items()}
    options = service_options(service, fleet, estimate.workload, performance, settings, speeds)
    options = keep_to_one_domain(options, counts, fleet)
    attainable = {phase: _attainable_share(found, counts) for phase, found in options.items()}
    promised = {phase: min(service.targets.percentile / 100.0, share) for phase, share in attainable.items()}
    lags = estimate_lags(observation, service.targets, promised, starves)
    state = ServiceState(service, observation, memory, {}, settling, fleet.gpu_prices)
    state.speeds, state.calibration = found.speeds, found.memory
    state.workload = estimate.workload
    state.extra.update(estimate.memory)
    state.extra.update({name: until for name, until in memory.extra.items() if name.startswith("blocked.") and until > now})
    if estimate.assumed and observation is not None:
        state.say(reasons.LENGTHS_ASSUMED, f"never observed, assumed: {', '.join(estimate.assumed)}")
    for phase in (phase for phase in Phase if phase in service.phases):
        phase_state = _phase_state(state, phase, options[phase], counts, lags[phase], starves, inputs, settings)
        state.phases[phase] = phase_state
        _trim(state, phase_state, promised[phase], inputs, settings)
        _describe(state, phase_state, estimate.workload)
        _say_out_of_reach(state, phase_state, attainable[phase])
        if not options[phase].options:
            state.infeasible = state.infeasible or infeasible(phase, phase_state.policy, options[phase].refusals)
    if starvation is not None and starves:
        state.say(reasons.DECODE_STARVES_PREFILL, f"slow first tokens are charged to decode: {starvation.message}", Phase.DECODE)
    _note_shift(state, now, window, settings)
    return state


def _phase_state(
    state: ServiceState,
    phase: Phase,
    found: PhaseOptions,
    counts: Mapping[Variant, int],
    lag: Lag,
    starves: bool,
    inputs: DecideInput,
    settings: Settings,
) -> PhaseState:
    service, extra, policy = state.service, state.memory.extra, state.service.phases[phase]
    options = {option.variant: option for option in found.options}
    current = {variant: count for variant, count in counts.items() if variant.phase is phase}
    slots = sum(s.ready * options[s.variant].capacity.max_batch for s in service.variants if s.variant in options)
    startup = _startup_seconds(options, current, settings)
    demand = estimate_demand(
        state.observation, phase, state.workload, extra, startup, starves, slots, inputs.now_seconds, settings
    )
    state.extra.update(demand.memory)
    result = PhaseState(
        phase=phase,
        policy=policy,
        options=options,
        refusals=found.refusals,
        demand=demand,
        lag=lag,
        memory=state.memory.phases.get(phase, PhaseMemory()),
        current=current,
        next=dict(current),
        statuses={status.variant: status for status in service.variants if status.variant.phase is phase},
    )
    # A service that never ran starts with one of each, also where an idle one may go down to none: else nothing ever wakes it.
    first = not counts and not state.memory.allocation and not state.memory.last_shrink_seconds
    fixed = result.fixed_count
    result.floor = fixed if fixed is not None else max(1, policy.minimum) if first else policy.minimum
    _count_on_need(result, settings)
    return result


def _count_on_need(phase: PhaseState, settings: Settings) -> None:
    """Need, and with it the capacity of a replica among those that it takes."""
    if isinstance(phase.demand, Demand):
        phase.needed = needed_tokens_per_second(phase.demand, phase.memory.trim, settings)
    phase.count_on(phase.needed)


def _calibrate(
    service: ServiceInput,
    observation: ServiceObservation | None,
    memory: ServiceMemory,
    fleet: FleetView,
    workload: Workload,
    performance: Performance,
    settling: bool,
    now: float,
) -> Calibrated:
    windows = []
    for status in service.variants:
        variant, pool = status.variant, fleet.pools.get(status.variant.pool)
        if not status.name or pool is None:
            continue
        times = performance.times(service.model, pool, variant.shape)
        capacity = performance.capacity(
            variant.phase, service.model, pool, variant.shape, workload.rounded(GRID), service.targets
        )
        if isinstance(times, Refusal) or isinstance(capacity, Refusal):
            continue
        seen = None if observation is None else observation.phase(variant.phase).per_variant.get(status.name)
        windows.append(Window(status, seen, times, capacity.kv_tokens, settling))
    return calibrate_variants(
        windows, memory.variants, service.engine, workload,
        at_seconds=now if observation is None else observation.at_seconds,
        window_seconds=0.0 if observation is None else observation.window_seconds,
        now_seconds=now,
    )  # fmt: skip


def _note_shift(state: ServiceState, now: float, window: float, settings: Settings) -> None:
    extra = state.memory.extra
    before = {phase: extra[name] for phase in state.phases if (name := f"{phase.value}.demand.level") in extra}
    after = {phase: entry.demand.now for phase, entry in state.phases.items() if isinstance(entry.demand, Demand)}
    shifted = any(isinstance(entry.demand, Demand) and entry.demand.shifted for entry in state.phases.values())
    shifts = note_shift(extra, now, before if shifted else after, after)
    state.extra.update(shifts)
    state.regimes = regimes(shifts, now, window, settings)


def _trim(state: ServiceState, phase: PhaseState, promised: float, inputs: DecideInput, settings: Settings) -> None:
    serving = phase.serving
    utilisation = None if phase.urgent is None or serving <= 0.0 else phase.urgent / serving
    outcome = adjust_trim(
        phase.memory,
        phase.lag,
        utilisation,
        state.settling,
        promised,
        inputs.now_seconds,
        inputs.interval_seconds,
        settings,
    )
    phase.memory = outcome.memory
    if outcome.raised:
        state.say(reasons.TRIM_RAISED, f"{phase.phase.value}: {outcome.raised}", phase.phase)
    elif outcome.eased:
        state.say(reasons.TRIM_EASED, f"{phase.phase.value}: {outcome.eased}", phase.phase)
    if outcome.raised or outcome.eased:
        _count_on_need(phase, settings)


def _attainable_share(found: PhaseOptions, counts: Mapping[Variant, int]) -> float:
    """Share of requests that replicas could serve in time when idle, where the phase runs (else anywhere)."""
    there = [option.capacity.attainable_share for option in found.options if counts.get(option.variant)]
    return max(there or [option.capacity.attainable_share for option in found.options], default=1.0)


def _say_out_of_reach(state: ServiceState, phase: PhaseState, attainable: float) -> None:
    if attainable < state.service.targets.percentile / 100.0 and phase.policy.scaling is Scaling.AUTO:
        state.say(
            reasons.OUT_OF_REACH,
            f"at most {attainable:.1%} of requests can meet the {phase.phase.value} target where it runs, whatever the number of "
            "replicas: the others are too long; a faster pool or a laxer target would help",
            phase.phase,
        )


def _describe(state: ServiceState, phase: PhaseState, workload: Workload) -> None:
    name = phase.phase.value
    if phase.policy.scaling is not Scaling.AUTO:
        return
    if isinstance(phase.demand, DemandUnknown):
        state.say(reasons.SIGNAL_UNKNOWN, f"{name}: {phase.demand.message}; it keeps what it has", phase.phase)
        return
    name_of_reason = (
        reasons.DEMAND_IDLE if phase.demand.idle else reasons.DEMAND_SHIFTED if phase.demand.shifted else reasons.DEMAND
    )
    state.say(name_of_reason, demand_rules.describe(phase.phase, phase.demand, workload), phase.phase)
    if phase.lag.lagging:
        state.say(reasons.LAGGING, f"{name} is at {phase.lag.value:.2f} of its target", phase.phase)


def _settling(service: ServiceInput, memory: ServiceMemory, now: float, window: float, interval: float) -> bool:
    """Whether the window still holds a move or its warm-up: what it shows is not how the present allocation performs."""
    last = max(memory.last_grow_seconds, memory.last_shrink_seconds, memory.last_flip_seconds)
    if last and now - last < window + interval:
        return True
    return any(status.starting or status.pending or status.draining for status in service.variants)


def _startup_seconds(options: Mapping[Variant, VariantOption], current: Mapping[Variant, int], settings: Settings) -> float:
    """How far ahead to look: the start-up time where the phase runs, else the fastest there is."""
    there = [options[variant].startup_seconds for variant in current if variant in options]
    every = [option.startup_seconds for option in options.values()]
    return max(there) if there else min(every, default=settings.startup_seconds)
