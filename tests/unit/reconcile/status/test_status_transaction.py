"""The transaction in status: told before the first step, kept until it is done, with what it waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.reconcile.status.facts import COUNTS, DECODE, PREFILL, P, decision, facts, flip

from equipoise.api.status import AllocationEntry, InferenceServiceStatus, Transaction
from equipoise.decide.rollout.state import RolloutState, Stage
from equipoise.decide.rollout.types import RolloutStep
from equipoise.decide.types import Move, MoveKind, Verdict
from equipoise.reconcile.rollout.memory import RolloutMemory
from equipoise.reconcile.status.transaction import begins, transaction

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
SERVED = InferenceServiceStatus(allocation=tuple(AllocationEntry.of(variant, count) for variant, count in COUNTS.items()))


def handover() -> Any:
    move = Move(MoveKind.HANDOVER, DECODE, PREFILL, 1, 1, "prefill is late")
    return decision(verdict=Verdict.MOVE, allocation={PREFILL: 2, DECODE: 1}, wanted={PREFILL: 3, DECODE: 1}, moves=(move,))


def starting() -> Any:
    plain = facts()
    return {**plain.phases, P: replace(plain.phases[P], desired=3, starting=1)}


def test_a_move_is_told_with_its_counts_before_and_after_and_a_deadline() -> None:
    found = transaction(SERVED, facts(decision=handover(), drain_grace_seconds=60.0), NOW)
    assert found is not None
    assert (found.kind, found.step, found.started_at) == ("handover", "begin", NOW)
    assert {(entry.phase.value, entry.replicas, entry.wanted) for entry in found.counts} == {("prefill", 2, 3), ("decode", 2, 1)}
    assert found.deadline > NOW
    assert begins(SERVED, handover())


def test_a_flip_has_a_minute() -> None:
    found = transaction(SERVED, facts(decision=flip()), NOW)
    assert found is not None
    assert found.deadline == "2026-01-01T00:01:00Z"


def test_the_first_placement_and_a_hold_are_no_moves() -> None:
    assert transaction(InferenceServiceStatus(), facts(decision=flip()), NOW) is None
    assert transaction(SERVED, facts(), NOW) is None
    assert not begins(SERVED, decision())


def test_it_is_kept_until_it_is_done_and_says_what_it_waits_for() -> None:
    begun = transaction(SERVED, facts(decision=handover()), NOW)
    told = SERVED.model_copy(
        update={"transaction": begun, "allocation": (AllocationEntry.of(PREFILL, 2, 3), AllocationEntry.of(DECODE, 1))}
    )
    waits = transaction(told, facts(decision=handover(), waiting=("pod-7 drains: answers in progress",)), LATER)
    assert waits is not None
    assert begun is not None
    assert (waits.id, waits.started_at, waits.deadline, waits.step) == (begun.id, NOW, begun.deadline, "drain")
    assert "pod-7 drains" in waits.message
    assert "GPUs of the donors" in waits.message
    assert transaction(told, facts(), LATER) is None, "all that is wanted is ready"


def test_what_takes_longer_than_it_should_is_called_overdue() -> None:
    old = Transaction(id="grow-1", kind="grow", step="begin", started_at=NOW, deadline="2026-01-01T00:01:00Z")
    found = transaction(SERVED.model_copy(update={"transaction": old}), facts(phases=starting()), LATER)
    assert found is not None
    assert found.message == "overdue since 2026-01-01T00:01:00Z, prefill: 1 start, 0 without a node"


def test_a_rollout_goes_before_everything_else_and_names_the_pod() -> None:
    step = RolloutStep(counts={}, waiting=("chat-x: ImagePullBackOff",), ready=2, replicas=7)
    memory = RolloutMemory(RolloutState("v1-b", "v1-a", Stage.ROLLING, 1767225600.0, 1767225600.0), step=step)
    found = transaction(SERVED, facts(decision=handover(), rollout=memory, progress_deadline_seconds=60.0), LATER)
    assert found is not None
    assert (found.kind, found.step, found.deadline) == ("rollout", "replace", "2026-01-01T00:01:00Z")
    assert found.message == "revision v1-b, 2 of 7 ready: chat-x: ImagePullBackOff"
