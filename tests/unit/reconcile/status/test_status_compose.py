"""The whole status from facts: what is new is said, what hardly moved is not, what is unknown is absent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reconcile.status.facts import PREFILL, D, P, decision, facts, figures, flip, phase_facts

from equipoise.api.conditions import find_condition
from equipoise.api.identity import Phase
from equipoise.api.status import InferenceServiceStatus
from equipoise.reconcile.status.compose import compose
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.moves import short

EMPTY = InferenceServiceStatus()
NOW, LATER = "2026-03-01T12:00:00Z", "2026-03-01T12:05:00Z"


def with_prefill(**changes: float | None) -> Facts:
    return facts(decision=decision(phases={P: figures(P, **changes), D: figures(D)}))


def test_a_first_status_says_everything() -> None:
    status = compose(EMPTY, facts(), NOW)
    assert status.observed_generation == 3
    assert (status.gpus, status.cost_per_hour, status.revision) == (4, "10.28", "r1")
    assert status.summary is not None
    assert (status.summary.ttft, status.summary.prefill, status.summary.lagging) == ("410ms/500ms", "2/2", "-")
    prefill = status.phases.prefill
    assert (prefill.latency, prefill.attainment, prefill.needed_tokens_per_second) == ("410ms", "0.97", 1000)
    assert (prefill.variants[0].name, prefill.variants[0].startup) == ("chat-prefill-h100-80gb", "42s")
    assert [(entry.phase, entry.replicas, entry.wanted) for entry in status.allocation] == [(D, 2, None), (P, 2, None)]
    assert status.goodput is not None
    assert (status.goodput.least, status.goodput.most) == ("0.94", "0.97")


def test_composing_again_from_the_same_facts_changes_nothing() -> None:
    first = compose(EMPTY, facts(), NOW)
    assert compose(first, facts(), LATER) == first


@pytest.mark.parametrize(("now", "text"), [(0.450, "410ms"), (0.370, "410ms"), (0.460, "460ms"), (None, None)])
def test_a_latency_is_written_anew_when_it_moved_by_more_than_a_tenth(now: float | None, text: str | None) -> None:
    first = compose(EMPTY, facts(), NOW)
    assert compose(first, with_prefill(latency_seconds=now), LATER).phases.prefill.latency == text


@pytest.mark.parametrize(("now", "text"), [(0.93, "0.97"), (0.90, "0.9"), (None, None)])
def test_a_share_is_written_anew_when_it_moved_by_more_than_a_twentieth(now: float | None, text: str | None) -> None:
    first = compose(EMPTY, facts(), NOW)
    assert compose(first, with_prefill(attainment=now), LATER).phases.prefill.attainment == text


def test_a_figure_that_creeps_is_not_left_behind() -> None:
    """Each step is small against the one before, not against what stands in the status."""
    status = compose(EMPTY, facts(), NOW)
    for demand in (950.0, 1000.0, 1050.0):
        status = compose(status, with_prefill(demand_tokens_per_second=demand), LATER)
    assert status.phases.prefill.demand_tokens_per_second == 1000


def test_transition_times_follow_the_status_not_the_message() -> None:
    first = compose(EMPTY, facts(), NOW)
    slower = compose(first, facts(decode=phase_facts(desired=3)), LATER)
    ready, progressing = (find_condition(slower.conditions, kind) for kind in ("Ready", "Progressing"))
    assert ready is not None
    assert (ready.last_transition_time, ready.message) == (NOW, "prefill: 2 of 2 replicas ready; decode: 2 of 3 replicas ready")
    assert progressing is not None
    assert progressing.last_transition_time == LATER


def test_a_new_process_keeps_what_the_last_one_found_until_it_knows_better() -> None:
    first = compose(EMPTY, facts(), NOW)
    restarted = compose(first, facts(decision=None, observation=None), LATER)
    assert restarted == first


def test_what_was_found_on_another_spec_does_not_stand() -> None:
    first = compose(EMPTY, facts(), NOW)
    changed = compose(first, facts(decision=None, observation=None, generation=4), LATER)
    met = find_condition(changed.conditions, "TargetsMet")
    assert met is not None
    assert (met.status, met.reason, met.observed_generation) == ("Unknown", "NotObservedYet", 4)


def test_a_decision_that_repeats_keeps_its_time() -> None:
    first = compose(EMPTY, facts(), NOW)
    reworded = decision(reasons=(replace(decision().reasons[0], message="utilisation 0.47"),))
    again = compose(first, facts(decision=reworded), LATER)
    assert again.last_decision is not None
    assert (again.last_decision.at_time, again.last_decision.reasons[0].message) == (NOW, "utilisation 0.47")
    moved = compose(first, facts(decision=flip()), LATER)
    assert moved.last_decision is not None
    assert moved.last_decision.at_time == LATER
    assert moved.last_decision.moves[0].donor == "decode@h100-80gb/tp1-bf16"


def test_what_is_wanted_beyond_what_is_set_is_shown() -> None:
    status = compose(EMPTY, facts(decision=decision(wanted={**decision().allocation, PREFILL: 3})), NOW)
    prefill = next(entry for entry in status.allocation if entry.phase is Phase.PREFILL)
    assert (prefill.replicas, prefill.wanted) == (2, 3)
    assert short(PREFILL) == "prefill@h100-80gb/tp1-bf16"


def test_a_drain_keeps_its_name_and_beginning_until_it_ends() -> None:
    drains = facts(waiting=("pod-7 drains: at most 60 s more",))
    first = compose(EMPTY, drains, NOW)
    assert first.transaction is not None
    second = compose(first, replace(drains, waiting=("pod-7 drains: at most 20 s more",)), LATER)
    assert second.transaction is not None
    assert (second.transaction.id, second.transaction.started_at) == (first.transaction.id, NOW)
    assert "20 s" in second.transaction.message
    assert compose(second, facts(), LATER).transaction is None
