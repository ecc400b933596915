"""The greedy solver behind `allocate`."""

from __future__ import annotations

import math

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.greedy import allocate
from equipoise.decide.allocation.scarcity import shadow_prices
from equipoise.decide.allocation.space import PoolSpace, chunks_of
from equipoise.decide.allocation.types import Allocation, AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption
from equipoise.perf.types import ReplicaCapacity

P, D = Phase.PREFILL, Phase.DECODE


def option(
    name: str, phase: Phase, pool: str, rate: float, price: float = 1.0, shape: Shape | None = None, preference: int = 0
) -> VariantOption:
    shape = shape or Shape()
    variant = Variant(ServiceKey("prod", name), phase, pool, shape)
    capacity = ReplicaCapacity(phase, rate, 64, 10_000, 0.1, "compute", "test")
    return VariantOption(variant, capacity, price * shape.gpus_per_replica, 60.0, preference)


def phase(
    which: Phase,
    needed: float | None,
    options: list[VariantOption],
    minimum: int = 1,
    maximum: int | None = None,
    current: dict[Variant, int] | None = None,
    held: bool = False,
) -> PhaseDemand:
    return PhaseDemand(which, needed, minimum, maximum, tuple(options), current or {}, held)


def service(name: str, prefill: PhaseDemand, decode: PhaseDemand, **changes: float | int | bool | None) -> ServiceDemand:
    given = {"priority": 0, "created_seconds": 0.0, **changes}
    return ServiceDemand(ServiceKey("prod", name), phases={P: prefill, D: decode}, **given)  # type: ignore[arg-type]


def nodes(pool: str, *gpus: int, own: dict[int, dict[Variant, int]] | None = None) -> tuple[NodeSpace, ...]:
    return tuple(NodeSpace(f"{pool}-{index}", count, (own or {}).get(index, {})) for index, count in enumerate(gpus))


def solve(pools: dict[str, tuple[NodeSpace, ...]], *services: ServiceDemand) -> Allocation:
    return allocate(AllocationProblem(pools, services))


def counts(found: Allocation, name: str = "a") -> tuple[int, int]:
    return tuple(sum(n for v, n in found.replicas.items() if v.service.name == name and v.phase is which) for which in (P, D))  # type: ignore[return-value]


def plain(name: str, prefill: float | None, decode: float | None, **changes: float | int | bool | None) -> ServiceDemand:
    return service(
        name,
        phase(P, prefill, [option(name, P, "h", 100.0)]),
        phase(D, decode, [option(name, D, "h", 10.0)]),
        **changes,
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "wanted"),
    [
        (0.0, 0.0, (1, 1)),
        (250.0, 35.0, (3, 4)),
        (100.0, 10.0, (1, 1)),
        (102.0, 10.2, (1, 1)),  # within the tolerance: a replica must not hang on noise
        (110.0, 11.0, (2, 2)),
    ],
)
def test_demand_is_covered_with_as_few_as_needed(prefill: float, decode: float, wanted: tuple[int, int]) -> None:
    found = solve({"h": nodes("h", 8)}, plain("a", prefill, decode))
    assert counts(found) == wanted
    assert not found.shortfalls


def test_a_shortage_is_split_so_that_the_larger_load_is_smallest() -> None:
    # 600 / 100 against 120 / 10 on eight GPUs: 3 and 5 give loads 2.0 and 2.4; 2 and 6 give 3.0 and 2.0.
    found = solve({"h": nodes("h", 8)}, plain("a", 600.0, 120.0))
    assert counts(found) == (3, 5)
    assert {shortfall.phase for shortfall in found.shortfalls} == {P, D}


def test_a_shortage_is_split_fairly_between_services_of_one_priority() -> None:
    found = solve({"h": nodes("h", 8)}, plain("a", 400.0, 20.0), plain("b", 400.0, 20.0))
    loads = [load for name in "ab" for load in (400 / 100 / counts(found, name)[0], 20 / 10 / counts(found, name)[1])]
    assert max(loads) == 2.0


def test_a_higher_priority_is_covered_first_and_everybody_keeps_the_minimum() -> None:
    found = solve({"h": nodes("h", 8)}, plain("a", 400.0, 20.0), plain("b", 400.0, 20.0, priority=1))
    assert counts(found, "b") == (4, 2)
    assert counts(found, "a") == (1, 1)


def test_the_older_service_gets_its_minimum_first() -> None:
    found = solve({"h": nodes("h", 3)}, plain("a", 0.0, 0.0, created_seconds=2.0), plain("b", 0.0, 0.0, created_seconds=1.0))
    assert counts(found, "b") == (1, 1)
    assert counts(found, "a") == (0, 0)  # one phase alone would serve nothing


@pytest.mark.parametrize(
    ("limits", "reason", "helps"),
    [
        ({"max_gpus": 4}, "MaxGPUs", "the limit of 4 GPUs"),
        ({"max_cost_usd_per_hour": 4.0}, "MaxCost", "maxCostPerHour 4"),
    ],
)
def test_budgets_hold_and_say_what_would_do(limits: dict[str, float], reason: str, helps: str) -> None:
    found = solve({"h": nodes("h", 8)}, plain("a", 400.0, 40.0, **limits))
    assert sum(counts(found)) == 4
    assert all(shortfall.reason == reason and helps in shortfall.message for shortfall in found.shortfalls)


def test_the_maximum_of_a_phase_holds() -> None:
    found = solve(
        {"h": nodes("h", 8)},
        service(
            "a",
            phase(P, 500.0, [option("a", P, "h", 100.0)], maximum=2),
            phase(D, 10.0, [option("a", D, "h", 10.0)]),
        ),
    )
    assert counts(found) == (2, 1)
    assert found.shortfalls[0].reason == "MaxReplicas"
    assert "5 would do" in found.shortfalls[0].message


def test_a_full_pool_says_how_many_gpus_would_help() -> None:
    found = solve({"h": nodes("h", 4)}, plain("a", 500.0, 20.0))
    assert "more GPU" in found.shortfalls[0].message
    assert found.shortfalls[0].reason == "PoolsFull"


def test_wide_replicas_need_their_gpus_on_one_node() -> None:
    wide = Shape(4)
    demand = service(
        "a",
        phase(P, 400.0, [option("a", P, "h", 400.0, shape=wide)]),
        phase(D, 40.0, [option("a", D, "h", 40.0, shape=wide)]),
    )
    assert counts(solve({"h": nodes("h", 4, 4)}, demand)) == (1, 1)
    broken = solve({"h": nodes("h", 4, 3, 3)}, demand)
    assert counts(broken) == (0, 0)
    assert "on one node" in " ".join(shortfall.message for shortfall in broken.shortfalls)


def test_small_replicas_leave_whole_nodes_whole() -> None:
    wide = Shape(4)
    found = solve(
        {"h": nodes("h", 4, 4)},
        service("s", phase(P, 100.0, [option("s", P, "h", 100.0)]), phase(D, 10.0, [option("s", D, "h", 10.0)])),
        service(
            "t",
            phase(P, 100.0, [option("t", P, "h", 100.0)]),
            phase(D, 40.0, [option("t", D, "h", 40.0, shape=wide)]),
            created_seconds=1.0,
        ),
    )
    assert counts(found, "s") == (1, 1)
    assert counts(found, "t") == (1, 1)


def test_cheapest_first_and_the_last_replica_may_be_a_small_one() -> None:
    found = solve(
        {"big": nodes("big", 8), "small": nodes("small", 8)},
        service(
            "a",
            phase(P, 210.0, [option("a", P, "big", 100.0, price=2.0), option("a", P, "small", 30.0, price=1.0)]),
            phase(D, 10.0, [option("a", D, "big", 10.0, price=2.0)]),
        ),
    )
    assert {v.pool: n for v, n in found.replicas.items() if v.phase is P} == {"big": 2, "small": 1}


def test_preferred_pools_fill_up_in_the_users_order_whatever_the_price() -> None:
    demand = service(
        "a",
        phase(P, 300.0, [option("a", P, "dear", 100.0, price=9.0), option("a", P, "cheap", 100.0, preference=1)]),
        phase(D, 10.0, [option("a", D, "cheap", 10.0)]),
        change_price_usd=1.0,
    )
    found = solve({"dear": nodes("dear", 2), "cheap": nodes("cheap", 8)}, demand)
    assert {v.pool: n for v, n in found.replicas.items() if v.phase is P} == {"dear": 2, "cheap": 1}


def current_on(pool: str, prefill: int, decode: int) -> dict[Phase, dict[Variant, int]]:
    key = ServiceKey("prod", "a")
    return {P: {Variant(key, P, pool, Shape()): prefill}, D: {Variant(key, D, pool, Shape()): decode}}


@pytest.mark.parametrize(("saving", "stays"), [(1.1, True), (2.0, False)])
def test_replicas_stay_where_they_are_unless_a_change_pays(saving: float, stays: bool) -> None:
    now = current_on("old", 2, 1)
    own = {0: {variant: n for counts_ in now.values() for variant, n in counts_.items()}}
    demand = service(
        "a",
        phase(P, 200.0, [option("a", P, "old", 100.0, price=saving), option("a", P, "new", 100.0)], current=now[P]),
        phase(D, 10.0, [option("a", D, "old", 10.0)], current=now[D]),
        change_price_usd=0.25,
    )
    found = solve({"old": nodes("old", 4, own=own), "new": nodes("new", 8)}, demand)
    assert {v.pool for v in found.replicas if v.phase is P} == ({"old"} if stays else {"new"})


def test_held_phases_keep_their_replicas_and_their_places() -> None:
    now = current_on("h", 3, 3)
    own = {0: {variant: n for counts_ in now.values() for variant, n in counts_.items()}}
    demand = service(
        "a",
        phase(P, None, [option("a", P, "h", 100.0)], current=now[P]),
        phase(D, 100.0, [option("a", D, "h", 10.0)], current=now[D]),
    )
    assert counts(solve({"h": nodes("h", 8, own=own)}, demand)) == (3, 5)


def test_comparative_advantage_gives_the_scarce_pool_to_whoever_loses_most_without_it() -> None:
    # Both phases like pool h best. Prefill loses a tenth on l, decode four fifths: decode gets h although prefill comes first.
    demand = service(
        "a",
        phase(P, 360.0, [option("a", P, "h", 100.0), option("a", P, "l", 90.0)]),
        phase(D, 40.0, [option("a", D, "h", 10.0), option("a", D, "l", 2.0)]),
    )
    found = solve({"h": nodes("h", 4), "l": nodes("l", 4)}, demand)
    assert not found.shortfalls
    assert {(v.phase, v.pool): n for v, n in found.replicas.items()} == {(D, "h"): 4, (P, "l"): 4}


def test_pools_that_are_not_scarce_have_no_shadow_price() -> None:
    demand = plain("a", 100.0, 10.0)
    assert shadow_prices(AllocationProblem({"h": nodes("h", 8)}, (demand,)), {"h": 8}) == {}


def test_closed_nodes_keep_what_they_have_and_take_nothing() -> None:
    key = ServiceKey("prod", "a")
    own = {Variant(key, P, "h", Shape()): 1, Variant(key, D, "h", Shape()): 1}
    closed = NodeSpace("h-0", 8, own, open=False)
    demand = service(
        "a",
        phase(P, 300.0, [option("a", P, "h", 100.0)], current={Variant(key, P, "h", Shape()): 1}),
        phase(D, 10.0, [option("a", D, "h", 10.0)], current={Variant(key, D, "h", Shape()): 1}),
    )
    assert counts(solve({"h": (closed,)}, demand)) == (1, 1)
    assert counts(solve({"h": (closed, NodeSpace("h-1", 2))}, demand)) == (3, 1)


def test_space_takes_best_fit_and_gives_back() -> None:
    space = PoolSpace(nodes("h", 8, 2, 4))
    assert space.take(1, 2) == (1,)
    assert space.take(1, 3) == (2,)
    assert space.take(1, 9) is None
    space.give_back(1, 2)
    assert space.free_gpus == space.total_gpus == 11
    assert space.take(2, 4) == (0, 0)
    assert space.take(2, 4) is None
    assert space.free_gpus == 3


def test_pipelines_span_nodes_only_where_no_node_is_large_enough() -> None:
    assert chunks_of(Shape(4, 2), 8) == (1, 8)
    assert chunks_of(Shape(8, 2), 8) == (2, 8)
    assert chunks_of(Shape(16), 8) == (1, 16)


def test_the_answer_names_its_method_and_proves_nothing() -> None:
    found = solve({"h": nodes("h", 8)}, plain("a", 100.0, 10.0))
    assert found.method == "greedy"
    assert math.isnan(found.gap)
    assert {name for places in found.placements.values() for name in places} == {"h-0"}
