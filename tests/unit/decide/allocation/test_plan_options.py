"""Capacities that are remembered for services which a phase cannot tell apart."""

from __future__ import annotations

from itertools import product

import pytest

from equipoise.api.identity import Phase, Shape
from equipoise.decide.options import FleetView
from equipoise.decide.performance import EnginePerformance, seen_by
from equipoise.fleet.catalogue import DEVICES, device
from equipoise.fleet.types import Fleet, NodeCapacity, Pool
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Targets, Workload

ENGINES = EnginePerformance()
WORKLOADS = [
    Workload(prompt, output, hit, squared)
    for prompt, output, hit, squared in product((300.0, 9_000.0), (20.0, 900.0), (0.0, 0.6), (None, 9e7))
]
TARGETS = [Targets(ttft, tpot, percentile) for ttft, tpot, percentile in product((0.3, 3.0), (0.03, 0.2), (90.0, 99.0))]


def pool(name: str, *sizes: int) -> Pool:
    return Pool(name.lower(), device(name), tuple(NodeCapacity(f"{name}-{index}", size) for index, size in enumerate(sizes)), 2.0)


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_sees_all_that_its_capacity_depends_on(phase: Phase) -> None:
    """Served or refused, and in which words: the same from what the phase sees as from everything."""
    model = model_facts("hf://any/Llama-3.1-8B")
    assert isinstance(model, ModelFacts)
    for name, workload, targets in product(("H100", "L4"), WORKLOADS, TARGETS):
        for sharing, speed in ((1, 1.0), (3, 0.8)):
            whole, seen = (
                ENGINES.capacity(phase, model, pool(name, 8), Shape(), *given, sharing=sharing, speed=speed)
                for given in ((workload, targets), seen_by(phase, workload, targets))
            )
            assert whole == seen


def test_services_that_a_phase_cannot_tell_apart_share_an_answer() -> None:
    first, second = Workload(1_000.0, 100.0, 0.2), Workload(1_000.0, 400.0, 0.2)
    assert seen_by(Phase.PREFILL, first, TARGETS[0]) == seen_by(Phase.PREFILL, second, TARGETS[0])
    assert seen_by(Phase.DECODE, first, TARGETS[0]) != seen_by(Phase.DECODE, second, TARGETS[0])


@pytest.mark.parametrize("sizes", [(), (0,), (1, 8, 4), (2, 2)])
def test_a_view_of_a_fleet_answers_as_its_pools_do(sizes: tuple[int, ...]) -> None:
    """Only the largest node is kept of a pool: every shape is served or refused as on all nodes."""
    name = next(name for name, entry in DEVICES.items() if entry.fitted_name is not None)
    given = pool(name, *sizes)
    kept = FleetView(Fleet((given,))).pools[given.name]
    model = model_facts("hf://any/Llama-3.1-8B")
    assert isinstance(model, ModelFacts)
    assert len(kept.nodes) <= 1
    for shape in (Shape(1), Shape(2), Shape(4), Shape(2, 2), Shape(8)):
        for phase in Phase:
            answers = [ENGINES.capacity(phase, model, one, shape, WORKLOADS[0], TARGETS[-1]) for one in (given, kept)]
            assert answers[0] == answers[1]
