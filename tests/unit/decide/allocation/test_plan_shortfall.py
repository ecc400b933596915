"""What is missing is said with the service, the replicas that would do, what there is, and the cheapest thing that helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from tests.unit.decide.allocation.small_fleets import problems

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation import greedy
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.types import Allocation, AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption
from equipoise.perf.types import ReplicaCapacity

KEY = ServiceKey("prod", "chat")
Solver = Callable[[AllocationProblem], Allocation]
SOLVERS = pytest.mark.parametrize("solve", [allocate, greedy.allocate])


def option(
    phase: Phase, rate: float, pool: str = "h100-80gb", shape: Shape | None = None, usd: float = 4.5, key: ServiceKey = KEY
) -> VariantOption:
    shape = shape or Shape()
    capacity = ReplicaCapacity(phase, rate, 64, 10_000, 0.1, "compute", "test")
    return VariantOption(Variant(key, phase, pool, shape), capacity, usd * shape.gpus_per_replica, 60.0)


def demand(
    prefill: tuple[VariantOption, ...],
    decode: tuple[VariantOption, ...],
    needs: tuple[float, float],
    maximum: int | None = None,
    max_gpus: int | None = None,
    max_cost_usd_per_hour: float | None = None,
    minimum: int = 1,
) -> ServiceDemand:
    phases = {
        Phase.PREFILL: PhaseDemand(Phase.PREFILL, needs[0], 1, None, prefill, {}),
        Phase.DECODE: PhaseDemand(Phase.DECODE, needs[1], minimum, maximum, decode, {}),
    }
    key = (*prefill, *decode)[0].variant.service
    return ServiceDemand(key, 0, 0.0, phases, max_gpus, max_cost_usd_per_hour)


def pool(name: str, *gpus: int, closed: int = 0) -> dict[str, tuple[NodeSpace, ...]]:
    return {
        name: tuple(NodeSpace(f"{name}-{place}", size, open=place >= closed) for place, size in enumerate(gpus)),
    }


def messages(found: Allocation) -> dict[Phase, str]:
    return {item.phase: item.message for item in found.shortfalls}


@SOLVERS
def test_a_full_pool(solve: Solver) -> None:
    wide = Shape(2)
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0, shape=wide),), (900.0, 1_900.0))
    found = messages(solve(AllocationProblem(pool("h100-80gb", 3), (asked,))))
    assert found == {
        Phase.DECODE: "prod/chat decode needs 2 more GPUs (h100-80gb/tp2-bf16 × 1) for 900 tokens/s: "
        "free: 0, no GPU is left in h100-80gb; cheapest cure: 2 more GPUs in h100-80gb (9.00 USD/h) would help"
    }


@SOLVERS
def test_the_cheapest_cure_is_in_the_cheapest_pool_for_what_is_missing(solve: Solver) -> None:
    """700 tokens/s are missing: one replica of the dear pool (4.50) does it, of the cheap one it takes seven (5.60)."""
    decode = (option(Phase.DECODE, 1_000.0), option(Phase.DECODE, 100.0, "l4-24gb", usd=0.8))
    asked = demand((option(Phase.PREFILL, 1_000.0),), decode, (900.0, 1_700.0))
    found = messages(solve(AllocationProblem({**pool("h100-80gb", 2), **pool("l4-24gb", 0)}, (asked,))))
    assert found[Phase.DECODE].startswith("prod/chat decode needs 1 more GPU (h100-80gb/tp1-bf16 × 1) for 700 tokens/s")
    assert "no GPU is left in h100-80gb, l4-24gb" in found[Phase.DECODE]


@SOLVERS
def test_wide_replicas_say_what_lies_on_one_node(solve: Solver) -> None:
    wide = Shape(4)
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0, shape=wide),), (900.0, 1_900.0))
    found = messages(solve(AllocationProblem(pool("h100-80gb", 4, 3, 3), (asked,))))
    assert found == {
        Phase.DECODE: "prod/chat decode needs 4 more GPUs (h100-80gb/tp4-bf16 × 1) for 900 tokens/s: "
        "a replica needs 4 GPUs on one node; free: 5 in h100-80gb (at most 3 on one node); "
        "cheapest cure: a node of h100-80gb with 4 free GPUs would help"
    }


@SOLVERS
@pytest.mark.parametrize(
    ("limits", "gpus", "limit", "cure"),
    [
        ({"max_gpus": 3}, 8, "the limit of 3 GPUs is reached (3 planned); free: 5 in h100-80gb", "5 would do"),
        ({"max_gpus": 3}, 3, "the limit of 3 GPUs is reached (3 planned); free: 0", "5 would do, with 2 more GPUs in h100-80gb"),
        ({"max_cost_usd_per_hour": 14.0}, 8, "maxCostPerHour 14 is reached (13.50 planned); free: 5", "22.50 would do"),
        ({"maximum": 2}, 8, "spec.phases.decode.max is 2; free: 5 in h100-80gb", "4 would do"),
    ],
)
def test_a_limit_that_binds_is_named_with_what_is_free(
    solve: Solver, limits: dict[str, int], gpus: int, limit: str, cure: str
) -> None:
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0),), (900.0, 3_900.0), **limits)
    found = messages(solve(AllocationProblem(pool("h100-80gb", gpus), (asked,))))
    assert set(found) == {Phase.DECODE}
    assert f": {limit}" in found[Phase.DECODE]
    assert f"; cheapest cure: {cure}" in found[Phase.DECODE]


@SOLVERS
def test_a_minimum_that_is_not_reached(solve: Solver) -> None:
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0),), (0.0, 0.0), minimum=3)
    found = messages(solve(AllocationProblem(pool("h100-80gb", 3), (asked,))))
    assert "needs 1 more GPU (h100-80gb/tp1-bf16 × 1), has 2 of at least 3 replicas: free: 0, no GPU" in found[Phase.DECODE]


@SOLVERS
def test_closed_nodes_are_counted(solve: Solver) -> None:
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0),), (900.0, 900.0))
    found = messages(solve(AllocationProblem(pool("h100-80gb", 4, 4, closed=2), (asked,))))
    assert set(found) == set(Phase)
    assert all("no GPU is left in h100-80gb; 2 nodes of h100-80gb take no pods" in text for text in found.values())


@SOLVERS
def test_a_phase_that_is_not_started_alone_says_what_the_other_lacks(solve: Solver) -> None:
    asked = demand((option(Phase.PREFILL, 1_000.0),), (option(Phase.DECODE, 1_000.0, "l4-24gb"),), (900.0, 900.0))
    found = messages(solve(AllocationProblem({**pool("h100-80gb", 4), **pool("l4-24gb", 0)}, (asked,))))
    assert "it is not started alone, decode has no room; free: 4 in h100-80gb" in found[Phase.PREFILL]
    assert "no GPU is left in l4-24gb" in found[Phase.DECODE]


def test_long_names_leave_the_need_and_the_cure() -> None:
    key = ServiceKey("n" * 60, "s" * 60)
    names = [f"{letter * 50}-{letter * 10}" for letter in "abcde"]
    shape = Shape(8)
    options = {
        phase: tuple(option(phase, 123_456.0, name, shape, key=key, usd=4.5 + place) for place, name in enumerate(names))
        for phase in Phase
    }
    asked = demand(options[Phase.PREFILL], options[Phase.DECODE], (123_456_789.0, 123_456_789.0))
    spaces = {name: space for name in names for space in [pool(name, 8)[name]]}
    for text in messages(allocate(AllocationProblem(spaces, (asked,)))).values():
        assert len(text) < 300
        assert names[0] in text
        assert "cheapest cure: 7,9" in text


@settings(max_examples=60, deadline=None)
@given(problems(most_services=3))
def test_every_message_is_short_and_names_the_service_and_a_cure(problem: AllocationProblem) -> None:
    for solve in (allocate, greedy.allocate):
        for item in solve(problem).shortfalls:
            assert len(item.message) < 300
            assert item.message.startswith(f"{item.service} {item.phase.value} needs ")
            assert "GPU" in item.message
            assert item.message.count("cheapest cure: ") == 1
