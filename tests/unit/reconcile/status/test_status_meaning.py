"""A status is written at once when a verdict changed, soon for counts, later for figures, never when only memory ticked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.reconcile.status.facts import D, P, decision, facts, figures, flip, phase_facts

from equipoise.api.conditions import Condition, ConditionType
from equipoise.api.status import InferenceServiceStatus
from equipoise.decide.memory import PhaseMemory, ServiceMemory
from equipoise.decide.types import Reason
from equipoise.reconcile.status.compose import compose
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.meaning import COUNTS_EVERY_SECONDS, FIGURES_EVERY_SECONDS, write_due_seconds

NOW = "2026-03-01T12:00:00Z"
OLD = compose(InferenceServiceStatus(), facts(), NOW)
MEMORY = decision().memory


def new(found: Facts) -> InferenceServiceStatus:
    return compose(OLD, found, "2026-03-01T12:00:10Z")


NEWS: dict[str, Callable[[], Facts]] = {
    "a phase is not ready any more": lambda: facts(prefill=phase_facts(ready=0)),
    "a move": lambda: facts(decision=flip()),
    "a rule that did not speak before": lambda: facts(decision=decision(reasons=(Reason("CoolingDown", "8 s left"),))),
    "another spec": lambda: facts(generation=4),
    "a cooldown began": lambda: facts(decision=decision(memory=replace(MEMORY, last_flip_seconds=1000.0))),
    "a drain began": lambda: facts(waiting=("pod-7 drains",)),
    "the lagging phase": lambda: facts(decision=decision(lagging=D)),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_is_written_at_once(what: str) -> None:
    assert write_due_seconds(OLD, new(NEWS[what]()), 0.0) == 0.0


def test_counts_wait_a_moment_so_that_pods_that_come_up_one_by_one_are_one_write() -> None:
    two = compose(OLD, facts(prefill=phase_facts(desired=4, ready=2)), NOW)
    three = compose(two, facts(prefill=phase_facts(desired=4, ready=3)), NOW)
    assert three.phases.prefill.ready == 3
    assert write_due_seconds(two, three, 0.25) == COUNTS_EVERY_SECONDS - 0.25
    assert write_due_seconds(two, three, COUNTS_EVERY_SECONDS) == 0.0


def test_which_phase_is_ready_first_waits_until_the_service_is() -> None:
    starting = compose(OLD, facts(prefill=phase_facts(ready=0), decode=phase_facts(ready=0)), NOW)
    half = compose(starting, facts(prefill=phase_facts(ready=1), decode=phase_facts(ready=0)), NOW)
    assert write_due_seconds(starting, half, 0.0) == COUNTS_EVERY_SECONDS
    assert write_due_seconds(half, new(facts()), 0.0) == 0.0


def test_figures_wait_for_their_turn() -> None:
    slower = new(facts(decision=decision(phases={P: figures(P, latency_seconds=0.7), D: figures(D, latency_seconds=0.031)})))
    assert slower.phases.prefill.latency == "700ms"
    assert write_due_seconds(OLD, slower, FIGURES_EVERY_SECONDS - 1.0) is None
    assert write_due_seconds(OLD, slower, FIGURES_EVERY_SECONDS) == 0.0


def test_sentences_are_figures_too() -> None:
    reworded = new(facts(decision=decision(reasons=(replace(decision().reasons[0], message="utilisation 0.47"),))))
    assert write_due_seconds(OLD, reworded, 0.0) is None
    assert write_due_seconds(OLD, reworded, FIGURES_EVERY_SECONDS) == 0.0


def test_a_countdown_of_a_drain_is_no_news() -> None:
    old = new(facts(waiting=("pod-7 drains: at most 60 s more",)))
    later = compose(old, facts(waiting=("pod-7 drains: at most 59 s more",)), NOW)
    assert write_due_seconds(old, later, 1.0) is None


def test_memory_that_only_ticks_never_causes_a_write() -> None:
    ticking = ServiceMemory(MEMORY.allocation, phases={P: PhaseMemory(short_rounds=2)}, extra={"prefill.demand.level": 950.0})
    ticked = new(facts(decision=decision(memory=ticking)))
    assert ticked.memory != OLD.memory
    assert write_due_seconds(OLD, ticked, 1e6) is None


def test_a_status_at_rest_is_never_written() -> None:
    assert write_due_seconds(OLD, new(facts()), 1e6) is None


def test_metrics_that_are_there_are_no_news_but_their_loss_and_return_are() -> None:
    def told(status: str) -> InferenceServiceStatus:
        kept = tuple(item for item in OLD.conditions if item.type != ConditionType.METRICS_AVAILABLE)
        mine = Condition(type=ConditionType.METRICS_AVAILABLE, status=status, reason="Seen", message="", observed_generation=3)
        return OLD.model_copy(update={"conditions": (*kept, mine)})

    assert write_due_seconds(told("Unknown"), told("True"), 0.0) is None
    assert write_due_seconds(told("Unknown"), told("True"), FIGURES_EVERY_SECONDS) == 0.0
    assert write_due_seconds(told("True"), told("False"), 0.0) == 0.0
    assert write_due_seconds(told("False"), told("True"), 0.0) == 0.0
