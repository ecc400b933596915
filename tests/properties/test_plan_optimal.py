"""The exact allocation against trying every plan of small problems, and what every plan keeps whatever the problem."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.decide.allocation.small_fleets import best_by_trying, broken_rules, problems

from equipoise.api.identity import Variant
from equipoise.decide.allocation import greedy
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.score import Score, score
from equipoise.decide.allocation.types import Allocation, AllocationProblem

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def worth(problem: AllocationProblem, found: Allocation) -> Score:
    """Figures of a plan, without what may not be changed."""
    layout = Layout(problem)
    counts: dict[Variant, int] = {}
    for choice in layout.choices:
        count = found.replicas.get(choice.variant, 0) - len(layout.fixed.places.get(choice.variant, ()))
        if count > 0:
            counts[choice.variant] = count
    return score(layout, counts)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(problems(running=False, most_gpus=3))
def test_no_plan_is_better_than_the_one_found(problem: AllocationProblem) -> None:
    """So nothing that can be met is ever called impossible, and nothing is paid that need not be."""
    found = allocate(problem)
    best = best_by_trying(problem)
    mine = worth(problem, found)
    if any(best.minimums):  # who goes without, among equally many, is told apart by demand and age together
        assert sum(mine.minimums) <= sum(best.minimums) + 0.02
        return
    assert not mine.worse_than(best), f"found {mine}, best {best}, {found}"
    assert found.gap <= 1e-5


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(problems(most_services=4))
def test_limits_and_nodes_are_kept_and_greedy_is_never_better(problem: AllocationProblem) -> None:
    found, filled = allocate(problem), greedy.allocate(problem)
    assert broken_rules(problem, found) == []
    assert broken_rules(problem, filled) == []
    assert not worth(problem, found).worse_than(worth(problem, filled))


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(problems(most_services=4), st.randoms(use_true_random=False))
def test_the_same_problem_in_another_order_gives_the_same_plan(problem: AllocationProblem, source: object) -> None:
    services, pools = list(problem.services), [(name, list(nodes)) for name, nodes in problem.pools.items()]
    for entries in (services, pools, *(nodes for _, nodes in pools)):
        source.shuffle(entries)  # type: ignore[attr-defined]
    other = replace(problem, services=tuple(services), pools={name: tuple(nodes) for name, nodes in pools})
    first, second = allocate(problem), allocate(other)
    assert (first.replicas, first.placements, first.shortfalls) == (second.replicas, second.placements, second.shortfalls)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(problems(most_services=4))
def test_without_time_there_still_is_a_plan(problem: AllocationProblem) -> None:
    found = allocate(replace(problem, time_limit_seconds=0.0))
    assert broken_rules(problem, found) == []
    assert not worth(problem, found).worse_than(worth(problem, Allocation({})))
