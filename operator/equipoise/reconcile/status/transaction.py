"""The move in flight, as status keeps it: what changes from where to where, since when, until when, and what it waits for."""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Variant
from equipoise.api.status import AllocationEntry, InferenceServiceStatus, Transaction
from equipoise.decide.rollout.state import Stage
from equipoise.decide.types import Decision, MoveKind, Verdict
from equipoise.reconcile.clock import parse_rfc3339, rfc3339
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.moves import move_status

_WEIGHT: Final = (MoveKind.HANDOVER, MoveKind.FLIP, MoveKind.GROW, MoveKind.SHRINK)  # several in one round go by the weightiest
_FLIP_SECONDS: Final = 60.0
_NODE_SECONDS: Final = 300.0  # for a pod to find a node: then it is given up by a decision
_UNKNOWN_STARTUP_SECONDS: Final = 300.0
_END_SECONDS: Final = 60.0  # for a drained pod to end
_MOVES_SHOWN: Final = 64


def transaction(old: InferenceServiceStatus, facts: Facts, now_iso: str) -> Transaction | None:
    """The transaction now: a rollout, else what was decided last and is not done, else a drain; None at rest.

    One that began keeps its name, beginning and deadline; a decision that asks for other counts begins another one. The first
    placement of a service is none: there is nothing to lose and nothing to go back to.
    """
    rollout = _rollout(facts)
    if rollout is not None:
        return rollout
    begun = _begun(old, facts, now_iso)
    if begun is not None:
        return begun
    before = old.transaction
    message = _message(before, facts, now_iso)
    if before is not None and before.kind not in ("drain", "rollout") and _in_flight(facts):
        step = "drain" if facts.waiting else "start"
        return before.model_copy(update={"step": step, "message": message})
    if not facts.waiting:
        return None
    kept = before if before is not None and before.kind == "drain" else None
    return Transaction(
        id=kept.id if kept else _name("drain", now_iso),
        kind="drain",
        step="wait",
        started_at=kept.started_at if kept else now_iso,
        message=message,
    )


def _rollout(facts: Facts) -> Transaction | None:
    memory = facts.rollout
    if memory is None or not memory.in_flight:
        return None
    state = memory.state
    started = rfc3339(state.started_seconds)
    deadline = state.deadline_seconds(facts.progress_deadline_seconds)
    waits = "; ".join([*memory.step.waiting, *facts.waiting])
    return Transaction(
        id=_name("rollout", started),
        kind="rollout",
        step="replace" if state.stage is Stage.ROLLING else "return",
        started_at=started,
        deadline="" if deadline is None else rfc3339(deadline),
        message=f"revision {state.target}, {memory.step.ready} of {memory.step.replicas} ready{': ' + waits if waits else ''}"[
            :4000
        ],
    )


def begins(old: InferenceServiceStatus, decision: Decision | None) -> bool:
    """Whether a decision moves replicas that status does not tell of yet: it is to be told before the first step."""
    if decision is None or decision.verdict is not Verdict.MOVE or not decision.moves or not old.allocation:
        return False
    return {variant: count for variant, count in _counts(old, decision).items() if count} != dict(decision.allocation)


def _counts(old: InferenceServiceStatus, decision: Decision) -> dict[Variant, int]:
    return {entry.variant(decision.service): entry.replicas for entry in old.allocation}


def _begun(old: InferenceServiceStatus, facts: Facts, now_iso: str) -> Transaction | None:
    """A transaction for counts that status does not have yet."""
    decision = facts.decision
    if decision is None or not begins(old, decision):
        return None
    before = _counts(old, decision)
    kind = min((move.kind for move in decision.moves), key=_WEIGHT.index)
    variants = sorted({*before, *decision.wanted})
    changed = [variant for variant in variants if before.get(variant, 0) != decision.wanted.get(variant, 0)]
    return Transaction(
        id=_name(kind.value, now_iso),
        kind=kind.value,
        step="begin",
        started_at=now_iso,
        deadline=rfc3339(parse_rfc3339(now_iso) + _allowed_seconds(kind, decision, facts)),
        moves=tuple(move_status(move) for move in decision.moves[:_MOVES_SHOWN]),
        counts=tuple(AllocationEntry.of(v, before.get(v, 0), decision.wanted.get(v, 0)) for v in changed[:_MOVES_SHOWN]),
        message="; ".join(move.reason for move in decision.moves if move.reason)[:4000],
    )


def _allowed_seconds(kind: MoveKind, decision: Decision, facts: Facts) -> float:
    """What the steps may take by their own bounds: a drain its grace, a pod its way to a node and twice its usual start."""
    receivers = {move.receiver for move in decision.moves}
    learned = [item.startup_seconds for item in facts.variants if item.variant in receivers and item.startup_seconds is not None]
    start = _NODE_SECONDS + 2.0 * max(learned, default=_UNKNOWN_STARTUP_SECONDS)
    drain = facts.drain_grace_seconds + _END_SECONDS
    return {
        MoveKind.FLIP: _FLIP_SECONDS,
        MoveKind.SHRINK: drain,
        MoveKind.GROW: start,
        MoveKind.HANDOVER: drain + start,
    }[kind]


def _in_flight(facts: Facts) -> bool:
    decision = facts.decision
    leads_on = decision is not None and dict(decision.wanted) != dict(decision.allocation)
    unsettled = any(found.ready != found.desired or found.draining for found in facts.phases.values())
    return bool(facts.waiting) or leads_on or unsettled


def _message(before: Transaction | None, facts: Facts, now_iso: str) -> str:
    """Which pod is waited for and why; that it takes longer than it should, where it does."""
    waits = list(facts.waiting)
    waits += [text for found in facts.phases.values() for text in found.troubles]
    waits += [
        f"{phase.value}: {found.starting} start, {found.pending} without a node"
        for phase, found in facts.phases.items()
        if found.starting or found.pending
    ]
    if facts.decision is not None and dict(facts.decision.wanted) != dict(facts.decision.allocation):
        waits.append("the receiver grows when GPUs of the donors are free")
    late = before is not None and bool(before.deadline) and before.deadline < now_iso
    head = f"overdue since {before.deadline}, " if before is not None and late else ""
    return (head + "; ".join(dict.fromkeys(waits)))[:4000]


def _name(kind: str, at_iso: str) -> str:
    return f"{kind}-{at_iso.replace(':', '').lower()}"
