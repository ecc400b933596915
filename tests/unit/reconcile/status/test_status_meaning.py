"""A status is written at once when its meaning changed, later when only figures did, and never when only memory ticked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.reconcile.status.facts import D, P, decision, facts, figures, flip, phase_facts

from equipoise.api.status import InferenceServiceStatus
from equipoise.decide.memory import PhaseMemory, ServiceMemory
from equipoise.decide.types import Reason
from equipoise.reconcile.status.compose import compose
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.meaning import FIGURES_EVERY_SECONDS, worth_writing

NOW = "2026-03-01T12:00:00Z"
OLD = compose(InferenceServiceStatus(), facts(), NOW)
MEMORY = decision().memory


def new(found: Facts) -> InferenceServiceStatus:
    return compose(OLD, found, "2026-03-01T12:00:10Z")


NEWS: dict[str, Callable[[], Facts]] = {
    "a replica became ready": lambda: facts(prefill=phase_facts(ready=1)),
    "a move": lambda: facts(decision=flip()),
    "a rule that did not speak before": lambda: facts(decision=decision(reasons=(Reason("CoolingDown", "8 s left"),))),
    "another spec": lambda: facts(generation=4),
    "a cooldown began": lambda: facts(decision=decision(memory=replace(MEMORY, last_flip_seconds=1000.0))),
    "a drain began": lambda: facts(waiting=("pod-7 drains",)),
    "the lagging phase": lambda: facts(decision=decision(lagging=D)),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_is_written_at_once(what: str) -> None:
    assert worth_writing(OLD, new(NEWS[what]()), 0.0)


def test_figures_wait_for_their_turn() -> None:
    slower = new(facts(decision=decision(phases={P: figures(P, latency_seconds=0.7), D: figures(D, latency_seconds=0.031)})))
    assert slower.phases.prefill.latency == "700ms"
    assert not worth_writing(OLD, slower, FIGURES_EVERY_SECONDS - 1.0)
    assert worth_writing(OLD, slower, FIGURES_EVERY_SECONDS)


def test_sentences_are_figures_too() -> None:
    reworded = new(facts(decision=decision(reasons=(replace(decision().reasons[0], message="utilisation 0.47"),))))
    assert not worth_writing(OLD, reworded, 0.0)
    assert worth_writing(OLD, reworded, FIGURES_EVERY_SECONDS)


def test_a_countdown_of_a_drain_is_no_news() -> None:
    old = new(facts(waiting=("pod-7 drains: at most 60 s more",)))
    later = compose(old, facts(waiting=("pod-7 drains: at most 59 s more",)), NOW)
    assert not worth_writing(old, later, 1.0)


def test_memory_that_only_ticks_never_causes_a_write() -> None:
    ticking = ServiceMemory(MEMORY.allocation, phases={P: PhaseMemory(short_rounds=2)}, extra={"prefill.demand.level": 950.0})
    ticked = new(facts(decision=decision(memory=ticking)))
    assert ticked.memory != OLD.memory
    assert not worth_writing(OLD, ticked, 1e6)


def test_a_status_at_rest_is_never_written() -> None:
    assert not worth_writing(OLD, new(facts()), 1e6)
