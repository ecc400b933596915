"""From the state at the end of a round to the decision: verdict, conditions, reasons, and memory for the next round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.demand import Demand
from equipoise.decide.memory import ServiceMemory, variant_key
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import CapacityMode, Decision, MoveKind, PhaseDecision, Reason, Scaling, Verdict

_STOPPING: Final = frozenset(
    {
        reasons.BEST_SPLIT,
        reasons.CONFIRMING,
        reasons.COOLING_DOWN,
        reasons.NOT_WORTH_IT,
        reasons.DONOR_UNSAFE,
        reasons.SHRINK_DELAYED,
        reasons.MOVE_IN_FLIGHT,
        reasons.WAITING_FOR_GPUS,
        reasons.SIGNAL_UNKNOWN,
        reasons.LAGGING_KEPT,
        reasons.RECOMMEND_ONLY,
    }
)


def conclude(service: ServiceState, now_seconds: float) -> Decision:
    """Everything that goes into status. A hold always says why."""
    allocation = _counts(phase.next for phase in service.phases.values())
    before = _counts(phase.current for phase in service.phases.values())
    changed = allocation != before or bool(service.moves)
    _explain_standing(service, changed)
    _warn_of_single_replicas(service)
    return Decision(
        service=service.service.key,
        verdict=Verdict.MOVE if changed else Verdict.HOLD,
        allocation=allocation,
        wanted=_wanted(service, allocation),
        moves=tuple(service.moves),
        phases={phase: _phase(state) for phase, state in service.phases.items()},
        reasons=tuple(service.reasons),
        memory=_memory(service, now_seconds, allocation),
        capacity_limited=_limited(service),
        infeasible=service.infeasible,
        lagging=_lagging(service),
        cost_usd_per_hour=round(service.cost(), 6),
        gpus=service.gpus(),
        options=tuple(option for state in service.phases.values() for option in state.options.values()),
        speeds=service.speeds,
        goodput_bounds=_goodput_bounds(service),
    )


def _counts(tables: Iterable[Mapping[Variant, int]]) -> dict[Variant, int]:
    return {variant: count for table in tables for variant, count in sorted(table.items()) if count > 0}


def _wanted(service: ServiceState, allocation: dict[Variant, int]) -> dict[Variant, int]:
    """Where the allocation leads: the advice in mode Recommend, else what is set now and what waits for GPUs."""
    if service.service.mode is CapacityMode.RECOMMEND:
        return _counts(phase.wanted for phase in service.phases.values())
    result = dict(allocation)
    for variant, count in service.waiting.items():
        result[variant] = result.get(variant, 0) + count
    return result


def _explain_standing(service: ServiceState, changed: bool) -> None:
    given = service.service
    if given.deleting:
        service.say(reasons.DELETING, "the service is being deleted: nothing is changed")
        return
    if given.mode is CapacityMode.OFF:
        service.say(reasons.CAPACITY_OFF, "mode Off: nothing is changed")
        return
    for phase, state in service.phases.items():
        if state.policy.scaling is not Scaling.AUTO and not any(reason.phase is phase for reason in service.reasons):
            name = reasons.EXTERNAL_COUNT if state.policy.scaling is Scaling.EXTERNAL else reasons.FIXED_COUNT
            service.say(name, f"{phase.value} is set to {state.fixed_count} by scaling {state.policy.scaling.value}", phase)
    if service.infeasible is not None:
        service.reasons.append(service.infeasible)
    limited = _limited(service)
    if limited is not None:
        service.reasons.append(limited)
    if changed or limited is not None or service.infeasible is not None:
        return
    if not any(reason.name in _STOPPING for reason in service.reasons):
        loads = ", ".join(
            f"{phase.value} {load:.2f}" for phase, state in service.phases.items() if (load := _load(state)) is not None
        )
        service.say(reasons.WITHIN_TARGETS, f"capacity covers the need{': utilisation ' + loads if loads else ''}")


def _warn_of_single_replicas(service: ServiceState) -> None:
    """Last in the list: it is true of every small service in every round, and never why something was done."""
    for phase, state in service.phases.items():
        if state.replicas() == 1 and service.active:
            service.say(reasons.BELOW_TWO, f"{phase.value} has a single replica: the service stops with it", phase)


def _limited(service: ServiceState) -> Reason | None:
    """What the plan could not give, only while somebody lacks it."""
    if service.infeasible is not None or not service.shortfalls:
        return None
    text = ". ".join(shortfall.message for shortfall in service.shortfalls)
    phase = service.shortfalls[0].phase if len(service.shortfalls) == 1 else None
    return Reason(reasons.CAPACITY_LIMITED, f"{service.shortfalls[0].reason}: {text}", phase)


def _load(state: PhaseState) -> float | None:
    work = state.urgent
    capacity = state.serving
    if work is None:
        return None
    if work <= 0.0:
        return 0.0
    return work / capacity if capacity > 0.0 else None


def _phase(state: PhaseState) -> PhaseDecision:
    return PhaseDecision(
        phase=state.phase,
        demand_tokens_per_second=state.demand.urgent if isinstance(state.demand, Demand) else None,
        capacity_tokens_per_second=state.serving if state.options else None,
        needed_tokens_per_second=state.needed,
        lag=state.lag.value,
        utilisation=_load(state),
        trim=state.memory.trim,
        latency_seconds=state.lag.latency_seconds,
        attainment=state.lag.attainment,
    )


def _lagging(service: ServiceState) -> Phase | None:
    lags = [(state.lag.value or 0.0, phase) for phase, state in service.phases.items() if state.lag.lagging]
    return max(lags)[1] if lags else None


def _goodput_bounds(service: ServiceState) -> tuple[float, float] | None:
    """Both targets are met by at most the lesser attainment, and at least by what is left when misses never coincide."""
    shares = [state.lag.attainment for state in service.phases.values()]
    known = [share for share in shares if share is not None]
    if len(known) < 2:
        return None
    return max(0.0, sum(known) - 1.0), min(known)


def _memory(service: ServiceState, now_seconds: float, allocation: dict[Variant, int]) -> ServiceMemory:
    kinds = {move.kind for move in service.moves}
    old = service.memory
    return replace(
        old,
        allocation={variant_key(variant): count for variant, count in allocation.items()},
        last_grow_seconds=now_seconds if MoveKind.GROW in kinds else old.last_grow_seconds,
        last_shrink_seconds=now_seconds if kinds & {MoveKind.SHRINK, MoveKind.HANDOVER} else old.last_shrink_seconds,
        last_flip_seconds=now_seconds if MoveKind.FLIP in kinds else old.last_flip_seconds,
        phases={phase: state.memory for phase, state in service.phases.items()},
        extra=dict(sorted(service.extra.items())),
        variants=service.calibration,
    )
