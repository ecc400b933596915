"""Pools of 80, 48 and 24 GB at two published price lists: which phase goes where is what the price per token says.

List A: the GPU catalogue of llm-d's planner (H100 4.50, A100 3.50, L4 0.80 USD per hour), with 1.80 for the L40S from the
simulator of vLLM's semantic router. List B: a marketplace in April 2026 (H100 2.57, A100 1.04, L40S 0.72). Capacities come
from the performance model, so they are estimates; the arithmetic on them is what is tested.
"""

from __future__ import annotations

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.fill import COVER_TOLERANCE
from equipoise.decide.allocation.types import AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.performance import EnginePerformance
from equipoise.decide.types import VariantOption
from equipoise.fleet.catalogue import device
from equipoise.fleet.types import NodeCapacity, Pool
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload

P, D = Phase.PREFILL, Phase.DECODE
LIST_A = {"H100": 4.50, "A100-80GB": 3.50, "L40S": 1.80, "L4": 0.80}
LIST_B = {"H100": 2.57, "A100-80GB": 1.04, "L40S": 0.72}
KEY = ServiceKey("prod", "chat")
REPLICAS = 150  # so many that the last one decides nothing


def capacities(names: list[str], ttft_seconds: float = 3.0) -> dict[tuple[Phase, str], ReplicaCapacity]:
    """Llama-3.1-8B for requests of 1,155 and 211 tokens at 50 ms per output token; what refuses is left out."""
    facts = model_facts("hf://meta-llama/Llama-3.1-8B-Instruct")
    assert isinstance(facts, ModelFacts)
    found = {}
    for name in names:
        pool = Pool(name, device(name), (NodeCapacity(name, 8),), 1.0)
        for phase in Phase:
            answer = EnginePerformance().capacity(
                phase, facts, pool, Shape(), Workload(1155.0, 211.0), Targets(ttft_seconds, 0.05)
            )
            if not isinstance(answer, Refusal):
                found[phase, name] = answer
    return found


def planned(prices: dict[str, float], rates: dict[tuple[Phase, str], ReplicaCapacity]) -> dict[Phase, str]:
    """The pool that holds nearly all of a phase."""
    phases = {}
    for phase in Phase:
        options = [
            VariantOption(Variant(KEY, phase, name, Shape()), rates[phase, name], price, 60.0)
            for name, price in prices.items()
            if (phase, name) in rates
        ]
        needed = REPLICAS * (1.0 + COVER_TOLERANCE) * max(option.capacity.tokens_per_second for option in options)
        phases[phase] = PhaseDemand(phase, needed, 1, None, tuple(options), {})
    pools = {name: tuple(NodeSpace(f"{name}-{index}", 8) for index in range(400)) for name in prices}
    found = allocate(AllocationProblem(pools, (ServiceDemand(KEY, 0, 0.0, phases),)))
    assert not found.shortfalls
    result = {}
    for phase in Phase:
        counts = {variant.pool: n for variant, n in found.replicas.items() if variant.phase is phase}
        result[phase] = max(counts, key=lambda name: counts[name])
        assert counts[result[phase]] >= 0.9 * sum(counts.values())
    return result


def cheapest(prices: dict[str, float], rates: dict[tuple[Phase, str], ReplicaCapacity], phase: Phase) -> str:
    """The arithmetic: USD per token."""
    return min((n for n in prices if (phase, n) in rates), key=lambda n: prices[n] / rates[phase, n].tokens_per_second)


@pytest.mark.parametrize("prices", [LIST_A, LIST_B])
def test_each_phase_goes_where_a_token_costs_least(prices: dict[str, float]) -> None:
    rates = capacities(list(prices))
    assert planned(prices, rates) == {phase: cheapest(prices, rates, phase) for phase in Phase}


def test_the_lists_put_the_phases_on_different_sides() -> None:
    """At list A one pool is best for both; at list B prefill and decode part, unless the TTFT target leaves no time to queue."""
    first, second = planned(LIST_A, capacities(list(LIST_A))), planned(LIST_B, capacities(list(LIST_B)))
    assert first == {P: "H100", D: "H100"}
    assert second == {P: "L40S", D: "A100-80GB"}
    assert planned(LIST_B, capacities(list(LIST_B), ttft_seconds=1.0)) == {P: "H100", D: "A100-80GB"}


def test_a_pool_of_24_gb_takes_no_decode_of_this_model() -> None:
    """An L4 needs more than 50 ms for reading the weights alone: it is offered for prefill, and for nothing else."""
    rates = capacities(["L4"])
    assert set(rates) == {(P, "L4")}
    assert planned({"L4": 0.05, "H100": LIST_A["H100"]}, capacities(["L4", "H100"])) == {P: "L4", D: "H100"}


@pytest.mark.parametrize("phase", [P, D])
@pytest.mark.parametrize(("mover", "holder"), [("L40S", "H100"), ("A100-80GB", "H100")])
def test_the_plan_changes_sides_where_prices_per_token_cross(phase: Phase, mover: str, holder: str) -> None:
    """Two pools, one price that falls: the crossing is at the price of the other times the ratio of the capacities."""
    rates = capacities([mover, holder])
    crossing = LIST_A[holder] * rates[phase, mover].tokens_per_second / rates[phase, holder].tokens_per_second
    assert planned({mover: 1.02 * crossing, holder: LIST_A[holder]}, rates)[phase] == holder
    assert planned({mover: 0.98 * crossing, holder: LIST_A[holder]}, rates)[phase] == mover
