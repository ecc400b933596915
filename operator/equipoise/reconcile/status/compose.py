"""From facts to the status of an InferenceService. Pure; figures that hardly moved keep their old value: rest is quiet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from equipoise.api.conditions import Condition, find_condition, set_condition
from equipoise.api.identity import Phase, Variant
from equipoise.api.status import (
    AllocationEntry,
    DecisionReason,
    Goodput,
    InferenceServiceStatus,
    LastDecision,
    PhasesStatus,
    PhaseStatus,
    VariantState,
    summarise,
)
from equipoise.api.values import format_duration, format_quantity, parse_duration, parse_quantity
from equipoise.decide.types import Decision, PhaseDecision
from equipoise.reconcile.status.conditions import NOT_YET, conditions
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.moves import move_status
from equipoise.reconcile.status.transaction import transaction

_STEADY_SHARE = 0.10  # a figure is written anew when it moved by more than a tenth


def compose(old: InferenceServiceStatus, facts: Facts, now_iso: str) -> InferenceServiceStatus:
    """The whole status: server-side apply takes away what is left out, so everything is said every time."""
    decision = facts.decision
    found = conditions(facts)
    told = {condition.type for condition in found}
    merged: Sequence[Condition] = [item for item in old.conditions if item.type in told]
    for condition in found:
        before = find_condition(old.conditions, condition.type)
        # A new process has not observed or decided yet: what the last one found stands until then.
        if condition.reason in NOT_YET and before is not None and before.observed_generation == facts.generation:
            continue
        merged = set_condition(merged, condition, now_iso)
    status = InferenceServiceStatus(
        observed_generation=facts.generation,
        conditions=tuple(merged),
        endpoint=facts.endpoint or None,
        revision=facts.revision or old.revision,
        rollout=facts.rollout.status() if facts.rollout else old.rollout,
        revisions=facts.rollout.history if facts.rollout else old.revisions,
        phases=PhasesStatus(
            prefill=_phase(old.phases.prefill, facts, Phase.PREFILL), decode=_phase(old.phases.decode, facts, Phase.DECODE)
        ),
        allocation=_allocation(decision) if decision else old.allocation,
        last_decision=_last_decision(old.last_decision, decision, now_iso) if decision else old.last_decision,
        transaction=transaction(old, facts, now_iso),
        memory=decision.memory.to_dict() or None if decision else old.memory,
        goodput=_goodput(old.goodput, decision) if decision else old.goodput,
        gpus=decision.gpus if decision else old.gpus,
        cost_per_hour=format_quantity(decision.cost_usd_per_hour, 2) if decision else old.cost_per_hour,
        lagging=decision.lagging if decision else old.lagging,
    )
    return status.model_copy(update={"summary": summarise(status)})


def _phase(old: PhaseStatus, facts: Facts, phase: Phase) -> PhaseStatus:
    found = facts.phases[phase]
    figures = _figures(old, facts.decision.phases.get(phase)) if facts.decision else _kept_figures(old)
    before = {item.name: item for item in old.variants}
    return PhaseStatus(
        desired=found.desired,
        ready=found.ready,
        target=facts.targets_text[phase],
        **figures,
        variants=tuple(
            VariantState(
                name=facts.names[item.variant],
                pool=item.variant.pool,
                shape=str(item.variant.shape),
                desired=item.desired,
                ready=item.ready,
                starting=item.starting,
                pending=item.pending,
                draining=item.draining,
                startup=None if item.startup_seconds is None else format_duration(round(item.startup_seconds)),
                message=facts.variant_messages.get(item.variant, ""),
                **_speed(before.get(facts.names[item.variant]), item.variant, facts.decision),
            )
            for item in facts.variants
            if item.variant.phase is phase
        ),
    )


def _speed(old: VariantState | None, variant: Variant, decision: Decision | None) -> dict[str, Any]:
    """The calibrated speed. Its sentence stays as long as the figure does: each window would put it a little differently."""
    if decision is None:
        return {} if old is None else {"speed": old.speed, "calibration": old.calibration}
    found = decision.speeds.get(variant)
    if found is None:
        return {}
    speed = format_quantity(found.factor, 2)
    same = old is not None and old.speed == speed and old.calibration
    return {"speed": speed, "calibration": old.calibration if old is not None and same else found.message}


_FIGURES: Final = (
    "capacity_tokens_per_second", "demand_tokens_per_second", "needed_tokens_per_second", "latency", "attainment", "lag",
    "utilisation",
)  # fmt: skip


def _kept_figures(old: PhaseStatus) -> dict[str, Any]:
    return {name: getattr(old, name) for name in _FIGURES}


def _figures(old: PhaseStatus, decided: PhaseDecision | None) -> dict[str, Any]:
    if decided is None:
        return {}
    return {
        "capacity_tokens_per_second": _steady_count(old.capacity_tokens_per_second, decided.capacity_tokens_per_second),
        "demand_tokens_per_second": _steady_count(old.demand_tokens_per_second, decided.demand_tokens_per_second),
        "needed_tokens_per_second": _steady_count(old.needed_tokens_per_second, decided.needed_tokens_per_second),
        "latency": _steady_duration(old.latency, decided.latency_seconds),
        "attainment": _steady_share(old.attainment, decided.attainment),
        "lag": _steady_share(old.lag, decided.lag),
        "utilisation": _steady_share(old.utilisation, decided.utilisation),
    }


def _steady_count(old: int | None, new: float | None) -> int | None:
    if new is None:
        return None
    if old is not None and abs(new - old) <= _STEADY_SHARE * max(abs(old), 1.0):
        return old
    return max(0, round(new))


def _steady_duration(old: str | None, new: float | None) -> str | None:
    if new is None:
        return None
    if old is not None and abs(new - parse_duration(old)) <= _STEADY_SHARE * parse_duration(old):
        return old
    return format_duration(_significant(new))


def _steady_share(old: str | int | None, new: float | None) -> str | None:
    if new is None:
        return None
    if old is not None and abs(new - parse_quantity(old)) <= max(0.01, _STEADY_SHARE / 2 * parse_quantity(old)):
        return str(old)
    return format_quantity(max(0.0, new), 3)


def _significant(value: float) -> float:
    """Two figures and never finer than a tenth of a millisecond: more would pretend what histograms do not know."""
    return round(float(f"{value:.2g}"), 4)


def _allocation(decision: Decision) -> tuple[AllocationEntry, ...]:
    variants = sorted({*decision.allocation, *decision.wanted})
    entries = [
        AllocationEntry.of(variant, decision.allocation.get(variant, 0), decision.wanted.get(variant, 0)) for variant in variants
    ]
    return tuple(entry for entry in entries if entry.replicas or entry.wanted)


def _last_decision(old: LastDecision | None, decision: Decision, now_iso: str) -> LastDecision:
    new = LastDecision(
        verdict=decision.verdict.value,
        at_time=now_iso,
        reasons=tuple(
            DecisionReason(name=item.name, message=item.message[:4000], phase=item.phase) for item in decision.reasons[:64]
        ),
        moves=tuple(move_status(move) for move in decision.moves[:64]),
    )
    if old is not None and _meaning(old) == _meaning(new):
        return new.model_copy(update={"at_time": old.at_time})
    return new


def _meaning(decision: LastDecision) -> object:
    moves = [(move.kind, move.donor, move.receiver, move.replicas) for move in decision.moves]
    return decision.verdict, moves, [(item.name, item.phase) for item in decision.reasons]


def _goodput(old: Goodput | None, decision: Decision) -> Goodput | None:
    if decision.goodput_bounds is None:
        return None
    least, most = decision.goodput_bounds
    return Goodput(
        least=_steady_share(old.least if old else None, least) or "0", most=_steady_share(old.most if old else None, most) or "0"
    )
