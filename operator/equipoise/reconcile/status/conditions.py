"""The conditions of an InferenceService, each from the facts it is about. Pure."""

from __future__ import annotations

from typing import Final

from equipoise.api.conditions import Condition, ConditionType
from equipoise.api.identity import Phase
from equipoise.decide.types import Verdict
from equipoise.observe.health import metrics_condition
from equipoise.observe.types import Idle, Known
from equipoise.reconcile.status.facts import Facts, PhaseFacts

_MESSAGE_LIMIT: Final = 4000
NOT_YET: Final = frozenset({"NotObservedYet", "NotDecidedYet"})  # reasons of a process that has only just begun


def conditions(facts: Facts) -> tuple[Condition, ...]:
    """All conditions, in a fixed order, without transition times."""
    phases = {phase: _phase_ready(facts, phase) for phase in Phase}
    return (
        _ready(facts, phases[Phase.PREFILL], phases[Phase.DECODE]),
        _progressing(facts),
        phases[Phase.PREFILL],
        phases[Phase.DECODE],
        _metrics_available(facts),
        _targets_met(facts),
        _capacity_limited(facts),
        _rebalancing(facts),
    )


def _condition(facts: Facts, kind: ConditionType, status: bool | None, reason: str, message: str) -> Condition:
    text = "Unknown" if status is None else "True" if status else "False"
    return Condition(
        type=kind.value, status=text, reason=reason, message=message[:_MESSAGE_LIMIT], observed_generation=facts.generation
    )


def _ready(facts: Facts, prefill: Condition, decode: Condition) -> Condition:
    kind = ConditionType.READY
    if facts.problem is not None and not facts.serves:
        return _condition(facts, kind, False, facts.problem.name, facts.problem.message)
    for phase, condition in ((Phase.PREFILL, prefill), (Phase.DECODE, decode)):
        if condition.status != "True":
            return _condition(facts, kind, False, f"{phase.value.capitalize()}NotReady", condition.message)
    if facts.problem is not None:
        message = f"serves as before, but the change cannot be carried out: {facts.problem.message}"
        return _condition(facts, kind, True, facts.problem.name, message)
    return _condition(facts, kind, True, "BothPhasesReady", f"prefill: {prefill.message}; decode: {decode.message}")


def _phase_ready(facts: Facts, phase: Phase) -> Condition:
    kind = ConditionType.PREFILL_READY if phase is Phase.PREFILL else ConditionType.DECODE_READY
    found = facts.phases[phase]
    count = f"{found.ready} of {found.desired} replicas ready"
    if found.desired == 0 and found.minimum == 0:
        return _condition(facts, kind, True, "ScaledToZero", "no replicas wanted: no traffic, and min is 0")
    if found.desired == 0:
        reason = facts.decision.infeasible or facts.decision.capacity_limited if facts.decision else None
        if reason is not None:
            return _condition(facts, kind, False, reason.name, reason.message)
        return _condition(facts, kind, False, "NotPlaced", "no replica is placed yet")
    if found.ready >= max(1, min(found.minimum, found.desired)):
        return _condition(facts, kind, True, "MinimumReady", count)
    return _condition(facts, kind, False, "TooFewReady", "; ".join([count, *found.troubles]))


def _progressing(facts: Facts) -> Condition:
    waiting = [
        f"{phase.value}: {_waits(found)}"
        for phase, found in facts.phases.items()
        if found.ready != found.desired or found.draining
    ]
    if waiting:
        return _condition(facts, ConditionType.PROGRESSING, True, "ReplicasChanging", "; ".join(waiting))
    return _condition(facts, ConditionType.PROGRESSING, False, "Settled", "every replica that is wanted is ready")


def _waits(found: PhaseFacts) -> str:
    parts = [f"{found.ready} of {found.desired} ready"]
    parts += [f"{count} {word}" for count, word in (
        (found.starting, "starting"), (found.pending, "without a node"), (found.draining, "draining")) if count]  # fmt: skip
    return ", ".join([*parts, *found.troubles])


def _metrics_available(facts: Facts) -> Condition:
    kind = ConditionType.METRICS_AVAILABLE
    if facts.metrics_trouble is not None:
        return _condition(facts, kind, False, facts.metrics_trouble.name, facts.metrics_trouble.message)
    if facts.observation is None:
        return _condition(facts, kind, None, "NotObservedYet", "no round has observed this service yet")
    found = metrics_condition(facts.observation)
    if not found.ok and not facts.serves:
        return _condition(facts, kind, None, "NotServingYet", f"no pod to measure yet: {found.message}")
    return _condition(facts, kind, found.ok, found.reason, found.message)


def _targets_met(facts: Facts) -> Condition:
    kind = ConditionType.TARGETS_MET
    if facts.observation is None:
        return _condition(facts, kind, None, "NotObservedYet", "no round has observed this service yet")
    measured = {
        Phase.PREFILL: facts.observation.ttft_attainment,
        Phase.DECODE: facts.observation.decode.attainment,
    }
    if facts.goodput_percent is not None and facts.decision is not None and facts.decision.goodput_bounds is not None:
        least, most = facts.decision.goodput_bounds
        met = None if least < facts.goodput_percent / 100 <= most else least >= facts.goodput_percent / 100
        message = f"goodput between {least:.1%} and {most:.1%}, wanted {facts.goodput_percent} %"
        return _condition(facts, kind, met, "GoodputMeasured", message)
    parts: list[str] = []
    verdicts: list[bool | None] = []
    for phase, signal in measured.items():
        name = "TTFT" if phase is Phase.PREFILL else "TPOT"
        if isinstance(signal, Known):
            verdicts.append(signal.value >= facts.percentile / 100)
            parts.append(
                f"{name}: {signal.value:.1%} of requests inside {facts.targets_text[phase]}, wanted {facts.percentile:g} %"
            )
        elif isinstance(signal, Idle):
            parts.append(f"{name}: no traffic")
        else:
            verdicts.append(None)
            parts.append(f"{name}: unknown ({signal.message or signal.reason.value})")
    message = "; ".join(parts)
    if False in verdicts:
        return _condition(facts, kind, False, "TargetMissed", message)
    if None in verdicts:
        return _condition(facts, kind, None, "SignalUnknown", message)
    if not verdicts:
        return _condition(facts, kind, None, "NoTraffic", message)
    return _condition(facts, kind, True, "BothMet", message)


def _capacity_limited(facts: Facts) -> Condition:
    kind = ConditionType.CAPACITY_LIMITED
    decision = facts.decision
    if decision is None:
        return _condition(facts, kind, None, "NotDecidedYet", "no round has decided on this service yet")
    for reason in (decision.infeasible, decision.capacity_limited):
        if reason is not None:
            return _condition(facts, kind, True, reason.name, reason.message)
    return _condition(facts, kind, False, "EnoughCapacity", "what is needed is there or coming")


def _rebalancing(facts: Facts) -> Condition:
    kind = ConditionType.REBALANCING
    if facts.waiting:
        return _condition(facts, kind, True, "MoveInFlight", "; ".join(facts.waiting))
    decision = facts.decision
    if (
        decision is not None
        and decision.verdict is Verdict.MOVE
        and any(found.ready != found.desired for found in facts.phases.values())
    ):
        return _condition(facts, kind, True, "MoveInFlight", "; ".join(move.reason for move in decision.moves if move.reason))
    if decision is not None and dict(decision.wanted) != dict(decision.allocation):
        return _condition(facts, kind, True, "WaitingForGPUs", "the wanted allocation waits for GPUs to be released")
    return _condition(facts, kind, False, "Balanced", "no move in flight")
