"""From speed to counts: replicas that share arrivals, and speeds that were calibrated."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.decide.world import MODEL, observation, service, table

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.decide import decide
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.options import FleetView, service_options
from equipoise.decide.performance import EnginePerformance, Performance, at_need, group_of
from equipoise.decide.settings import Settings
from equipoise.decide.types import CapacityMode, DecideInput, Decision, PhasePolicy, ServiceInput, VariantOption, VariantStatus
from equipoise.fleet.catalogue import device
from equipoise.fleet.types import Fleet, NodeCapacity, Pool
from equipoise.observe.types import VariantObservation
from equipoise.perf.types import ReplicaCapacity, Targets, Workload

ENGINES = EnginePerformance()
CHAT = Workload(1155.0, 211.0)
TARGETS = Targets(0.5, 0.05)
KEY = ServiceKey("prod", "chat")


def nodes(name: str, count: int = 4) -> Pool:
    return Pool(name.lower(), device(name), tuple(NodeCapacity(f"{name}-{index}", 8) for index in range(count)), 2.0)


def capacities(name: str = "A100-80GB", phase: Phase = Phase.PREFILL, speed: float = 1.0) -> tuple[ReplicaCapacity, ...]:
    found = group_of(ENGINES, phase, MODEL, nodes(name), Shape(), CHAT, TARGETS, speed=speed)
    assert isinstance(found, tuple)
    return found


def counted(group: tuple[ReplicaCapacity, ...], needed: float | None) -> float:
    variant = Variant(KEY, group[0].phase, "a100-80gb", Shape())
    return at_need({variant: VariantOption(variant, group[0], 2.0, 60.0, group=group)}, needed)[
        variant
    ].capacity.tokens_per_second


@pytest.mark.parametrize("phase", Phase)
def test_a_need_takes_the_fewest_replicas_that_carry_it_together(phase: Phase) -> None:
    group = capacities(phase=phase)
    together = [count * one.tokens_per_second for count, one in enumerate(group, 1)]
    for step in range(1, 400):
        needed = together[-1] * step / 320.0
        fewest = next((count for count, total in enumerate(together, 1) if total >= needed), None)
        expected = fewest if fewest is not None else math.ceil(needed / group[-1].tokens_per_second)
        assert math.ceil(needed / counted(group, needed) - 1e-9) == expected, needed


def test_without_a_need_a_replica_counts_for_itself() -> None:
    group = capacities()
    assert counted(group, None) == counted(group, 0.0) == counted(group, 1.0) == group[0].tokens_per_second
    assert counted(group, math.nan) == group[0].tokens_per_second


def round_of(
    resource: ServiceInput,
    rate: float,
    *,
    pool: Pool | None = None,
    performance: Performance = ENGINES,
    memory: ServiceMemory | None = None,
    ready: int = 1,
    seen: VariantObservation | None = None,
    at: float = 10_000.0,
) -> Decision:
    """One decision for a service whose replicas all sit on one pool."""
    where = pool or nodes("A100-80GB")
    variants = tuple(
        VariantStatus(Variant(KEY, phase, where.name, Shape()), ready, ready, startup_seconds=60.0, name=phase.value)
        for phase in Phase
    )
    found = {} if seen is None else {"per_variant": {Phase.DECODE.value: seen}}
    inputs = DecideInput(
        (replace(resource, variants=variants),),
        {KEY: observation(KEY, rate, 1155.0, 211.0, at=at, window=60.0, decode=found)},
        {KEY: memory or ServiceMemory()},
        at,
    )
    return decide(Fleet((where,)), inputs, performance)[KEY]


def wanted(decision: Decision, phase: Phase) -> int:
    return sum(count for variant, count in decision.wanted.items() if variant.phase is phase)


def test_prefill_is_not_sized_as_if_each_replica_stood_alone() -> None:
    """30 requests/s of 1,155 tokens on A100: alone each sustains 40 % of its peak, together 83 %."""
    alone = capacities()[0].tokens_per_second
    narrow = {phase: PhasePolicy(shape=Shape()) for phase in Phase}
    given = service(targets=TARGETS, mode=CapacityMode.RECOMMEND, phases=narrow)
    shared, apart = round_of(given, 30.0), round_of(replace(given, shares_arrivals=False), 30.0)
    needed = shared.phases[Phase.PREFILL].needed_tokens_per_second
    assert needed is not None
    assert wanted(apart, Phase.PREFILL) == math.ceil(needed / alone)
    assert wanted(shared, Phase.PREFILL) <= wanted(apart, Phase.PREFILL) - 2
    group = capacities()
    count = wanted(shared, Phase.PREFILL)
    assert count * group[min(count, 4) - 1].tokens_per_second >= 0.97 * needed


def test_the_policy_knows_whether_the_router_shares() -> None:
    from equipoise.api.service import InferenceService
    from equipoise.decide.policy import ServicePolicy, service_policy

    def shares(router: str) -> bool:
        found = service_policy(
            InferenceService.parse(
                {
                    "metadata": {"name": "chat", "namespace": "prod"},
                    "spec": {
                        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
                        "targets": {"ttft": "1s", "tpot": "50ms"},
                        "router": {"type": router},
                    },
                }
            )
        )
        assert isinstance(found, ServicePolicy)
        return found.service_input().shares_arrivals

    assert shares("vllm-router")
    assert not shares("none")


def test_a_calibrated_speed_changes_capacity_through_the_targets() -> None:
    plain, slow = capacities("L40S", Phase.DECODE)[0], capacities("L40S", Phase.DECODE, 0.8)[0]
    # Reading the weights takes a fixed part of the step, so a fifth of the speed costs more than a fifth of the capacity.
    assert slow.tokens_per_second < 0.75 * plain.tokens_per_second
    assert "calibrated x 0.80" in slow.source


def test_a_calibrated_speed_never_takes_a_variant_off_the_list_nor_leaves_the_bounds() -> None:
    """At half its speed an L40S hardly meets 50 ms even with one sequence, and misses 40 ms; the table says it serves."""
    half = 0.5 * capacities("L40S", Phase.DECODE)[0].tokens_per_second
    assert capacities("L40S", Phase.DECODE, 0.5)[0].tokens_per_second == pytest.approx(half)
    tight = [
        group_of(ENGINES, Phase.DECODE, MODEL, nodes("L40S"), Shape(), CHAT, Targets(0.5, 0.04), speed=speed)
        for speed in (1.0, 0.5)
    ]
    rates = [group[0].tokens_per_second for group in tight if isinstance(group, tuple)]
    assert rates[1] == pytest.approx(0.5 * rates[0])


def test_speeds_reach_only_their_variant() -> None:
    view = FleetView(Fleet((nodes("A100-80GB"), nodes("H100"))))
    plain = service_options(service(targets=TARGETS), view, CHAT, ENGINES, Settings())
    slow = Variant(KEY, Phase.DECODE, "h100", Shape())
    changed = service_options(service(targets=TARGETS), view, CHAT, ENGINES, Settings(), {slow: 0.7})
    for phase in Phase:
        for before, after in zip(plain[phase].options, changed[phase].options, strict=True):
            assert before.variant == after.variant
            assert (before.capacity != after.capacity) == (before.variant == slow)


def test_slow_engines_are_found_out_and_get_company() -> None:
    """A decode pool at 0.7 of the table's speed: the decision says so, keeps it in memory, and counts on less."""
    performance = table(a100=(50_000.0, 1_000.0))
    pool = replace(nodes("A100-80GB"), name="a100", device=replace(device("A100-80GB"), name="a100"))
    expected = performance.times(MODEL, pool, Shape())
    load, memory, decisions = 0.2 * 400_000 + 1366, ServiceMemory(), []
    step = expected.decode_step_seconds(load / 1366, load) / 0.7  # type: ignore[union-attr]
    seen = VariantObservation(pods=2, latency_mean_seconds=step, latency_samples=300, running_requests=58, kv_usage_share=0.2)
    for index in range(16):
        decisions.append(
            round_of(
                service(engine="v1-a"), 7.0, pool=pool, performance=performance, memory=memory, ready=2, seen=seen,
                at=10_000.0 + 60.0 * index,
            )
        )  # fmt: skip
        memory = ServiceMemory.from_dict(decisions[-1].memory.to_dict())
    first, last = decisions[0], decisions[-1]
    variant = Variant(KEY, Phase.DECODE, "a100", Shape())
    assert not first.speeds
    assert last.speeds[variant].factor == pytest.approx(0.7, abs=0.02)
    assert last.phases[Phase.DECODE].capacity_tokens_per_second == pytest.approx(2 * 700.0, rel=0.03)
    assert wanted(last, Phase.DECODE) > wanted(first, Phase.DECODE)
    anew = round_of(service(engine="v1-b"), 7.0, pool=pool, performance=performance, memory=memory, ready=2, at=20_000.0)
    assert not anew.speeds
