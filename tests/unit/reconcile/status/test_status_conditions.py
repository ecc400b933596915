"""Each condition says what is, why, and what would help; nothing unknown is said to be well or ill."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.status.facts import COUNTS, D, P, decision, facts, flip, observed, phase_facts

from equipoise.api.conditions import Condition, ConditionType, find_condition
from equipoise.decide.types import Reason
from equipoise.observe.types import Idle, Known, Unknown, UnknownReason
from equipoise.reconcile.status.conditions import conditions
from equipoise.reconcile.status.facts import Facts

FULL = Reason("CapacityLimited", "PoolsFull: prefill lacks 800 tokens/s: 2 more GPUs in h100-80gb would help")
NO_SIGNAL = Unknown(UnknownReason.STALE, "no sample for 90 s")


def say(found: Facts, kind: ConditionType) -> Condition:
    condition = find_condition(conditions(found), kind.value)
    assert condition is not None
    assert condition.observed_generation == 3
    return condition


def test_a_service_that_is_well_says_so_in_every_condition() -> None:
    found = {item.type: (item.status, item.reason) for item in conditions(facts())}
    assert found == {
        "Ready": ("True", "BothPhasesReady"),
        "Progressing": ("False", "Settled"),
        "PrefillReady": ("True", "MinimumReady"),
        "DecodeReady": ("True", "MinimumReady"),
        "MetricsAvailable": ("True", "Available"),
        "TargetsMet": ("True", "BothMet"),
        "CapacityLimited": ("False", "EnoughCapacity"),
        "Rebalancing": ("False", "Balanced"),
    }
    assert set(found) == {kind.value for kind in ConditionType}


def test_ready_names_the_phase_that_is_not_and_what_keeps_its_pods() -> None:
    found = facts(decode=phase_facts(ready=0, pending=2, troubles=("pod-1 has no node: 0/3 nodes fit",)))
    ready = say(found, ConditionType.READY)
    assert (ready.status, ready.reason) == ("False", "DecodeNotReady")
    assert ready.message == "0 of 2 replicas ready; pod-1 has no node: 0/3 nodes fit"
    assert say(found, ConditionType.PREFILL_READY).status == "True"
    assert "2 without a node" in say(found, ConditionType.PROGRESSING).message


@pytest.mark.parametrize(
    ("minimum", "desired", "ready", "status"),
    [(3, 5, 3, "True"), (3, 5, 2, "False"), (3, 2, 2, "True"), (0, 2, 0, "False"), (0, 2, 1, "True"), (0, 0, 0, "True")],
)
def test_a_phase_is_ready_from_its_minimum_on(minimum: int, desired: int, ready: int, status: str) -> None:
    found = facts(prefill=phase_facts(minimum=minimum, desired=desired, ready=ready))
    assert say(found, ConditionType.PREFILL_READY).status == status


def test_a_phase_without_a_place_says_what_would_help() -> None:
    found = facts(prefill=phase_facts(desired=0, ready=0), decision=decision(capacity_limited=FULL))
    assert say(found, ConditionType.PREFILL_READY).message == FULL.message
    assert say(found, ConditionType.READY).message == FULL.message
    assert say(replace(found, decision=None), ConditionType.PREFILL_READY).reason == "NotPlaced"


def test_a_spec_that_cannot_be_carried_out_does_not_take_a_running_service_down() -> None:
    problem = Reason("UnknownModel", "spec.model.uri: give spec.model.architecture")
    running = say(facts(problem=problem), ConditionType.READY)
    assert (running.status, running.reason) == ("True", "UnknownModel")
    assert problem.message in running.message
    stopped = say(facts(prefill=phase_facts(ready=0), problem=problem), ConditionType.READY)
    assert (stopped.status, stopped.reason, stopped.message) == ("False", "UnknownModel", problem.message)


def test_draining_replicas_are_progress() -> None:
    found = say(facts(prefill=phase_facts(draining=1)), ConditionType.PROGRESSING)
    assert (found.status, found.message) == ("True", "prefill: 2 of 2 ready, 1 draining")


def test_trouble_of_the_source_is_said_before_that_of_single_signals() -> None:
    trouble = Reason("Unreachable", "39 of 39 queries failed")
    found = say(facts(metrics_trouble=trouble, observation=None), ConditionType.METRICS_AVAILABLE)
    assert (found.status, found.reason, found.message) == ("False", "Unreachable", trouble.message)


def test_missing_metrics_are_no_fault_before_anything_serves() -> None:
    seen = replace(observed(), decode=replace(observed().decode, tokens_per_second=NO_SIGNAL))
    assert say(facts(observation=seen), ConditionType.METRICS_AVAILABLE).reason == "Stale"
    early = say(facts(decode=phase_facts(ready=0), observation=seen), ConditionType.METRICS_AVAILABLE)
    assert (early.status, early.reason) == ("Unknown", "NotServingYet")


@pytest.mark.parametrize(
    ("ttft", "tpot", "status", "reason"),
    [
        (Known(0.95), Known(0.95), "True", "BothMet"),
        (Known(0.949), Known(0.99), "False", "TargetMissed"),
        (Known(0.50), NO_SIGNAL, "False", "TargetMissed"),
        (Known(0.99), NO_SIGNAL, "Unknown", "SignalUnknown"),
        (Known(0.99), Idle(), "True", "BothMet"),
        (Idle(), Idle(), "Unknown", "NoTraffic"),
    ],
)
def test_targets_are_met_by_the_share_that_was_asked_for(ttft: Any, tpot: Any, status: str, reason: str) -> None:
    found = say(facts(observation=observed(ttft, tpot)), ConditionType.TARGETS_MET)
    assert (found.status, found.reason) == (status, reason)


def test_a_message_on_targets_carries_the_figures() -> None:
    found = say(facts(observation=observed(Known(0.5), NO_SIGNAL)), ConditionType.TARGETS_MET)
    assert found.message == "TTFT: 50.0% of requests inside 500ms, wanted 95 %; TPOT: unknown (no sample for 90 s)"


@pytest.mark.parametrize(("wanted", "status"), [(94, "True"), (96, "Unknown"), (97, "Unknown"), (98, "False")])
def test_goodput_is_only_judged_as_far_as_its_bounds_allow(wanted: int, status: str) -> None:
    """Between 94 and 97 % met both targets: what lies between is not known."""
    assert say(facts(goodput_percent=wanted), ConditionType.TARGETS_MET).status == status


def test_what_cannot_run_at_all_is_said_before_what_only_lacks() -> None:
    nothing = Reason("NothingFits", "nothing can serve decode: l4: 62 ms a step, target 50 ms")
    found = say(facts(decision=decision(infeasible=nothing, capacity_limited=FULL)), ConditionType.CAPACITY_LIMITED)
    assert (found.status, found.reason, found.message) == ("True", "NothingFits", nothing.message)


def test_a_new_process_judges_nothing_before_its_first_round() -> None:
    found = facts(decision=None, observation=None)
    for kind in (ConditionType.METRICS_AVAILABLE, ConditionType.TARGETS_MET, ConditionType.CAPACITY_LIMITED):
        assert say(found, kind).status == "Unknown"
    assert say(found, ConditionType.READY).status == "True"


def test_rebalancing_follows_the_move_to_its_end() -> None:
    moving = facts(prefill=phase_facts(desired=3), decision=flip())
    assert say(moving, ConditionType.REBALANCING).message == "utilisation 1.40 of prefill falls to 0.90"
    assert say(facts(decision=flip()), ConditionType.REBALANCING).status == "False"
    drains = say(facts(waiting=["pod-7 drains: answers in progress"]), ConditionType.REBALANCING)
    assert (drains.status, drains.reason) == ("True", "MoveInFlight")
    more = {variant: count + (variant.phase is P) for variant, count in COUNTS.items()}
    waits = say(facts(decision=decision(wanted=more)), ConditionType.REBALANCING)
    assert (waits.status, waits.reason) == ("True", "WaitingForGPUs")


def test_a_message_that_is_too_long_for_the_api_is_cut() -> None:
    found = facts(decode=phase_facts(ready=0, troubles=("x" * 9000,)))
    assert all(len(item.message) <= 4096 for item in conditions(found))
    assert D in found.phases
