"""Each rival does what its description says, on observations made by hand; and the searches find what is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.policy import ServicePolicy, service_policy
from equipoise.decide.types import VariantStatus
from equipoise.fleet.types import Fleet
from equipoise.observe.types import Known, PhaseObservation, ServiceObservation
from equipoise.simulate.loop.hardware import Hardware
from equipoise.simulate.loop.policy import PhaseGauges, Policy, ServiceView, View
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.dynamo import DynamoSla
from equipoise.simulate.rivals.heteroscale import HeteroScale
from equipoise.simulate.rivals.hpa import LatencyHpa, Stabiliser, UtilisationHpa
from equipoise.simulate.rivals.keda import SloKeda, TokenKeda
from equipoise.simulate.rivals.naive import NaiveShift
from equipoise.simulate.rivals.registry import POLICIES, run_named
from equipoise.simulate.rivals.search import best_static, frontier, full_splits
from equipoise.simulate.scenarios.basics import a100, alternation, resource, service, split

KEY = ServiceKey("prod", "chat")
PREFILL = Variant(KEY, Phase.PREFILL, "a100", Shape())
DECODE = PREFILL.with_phase(Phase.DECODE)
WORLD = World((a100(8),), (service("azure-conv:60s@8", split(2, 2, "a100")),), 60.0)


def view(
    now: float = 300.0,
    counts: tuple[int, int] = (2, 2),
    prefill: Mapping[str, float] | None = None,
    decode: Mapping[str, float] | None = None,
    gauges: Mapping[Phase, PhaseGauges] | None = None,
    **whole: float,
) -> View:
    """Everything serves; 8 requests/s of 1,155 + 211 tokens; signals by name."""
    hardware = Hardware(WORLD.pools)
    for variant, count in zip((PREFILL, DECODE), counts, strict=True):
        for _ in range(count):
            assert hardware.bind(variant, 0.0) is not None
    given = service_policy(resource())
    assert isinstance(given, ServicePolicy)
    statuses = tuple(VariantStatus(variant, count, count) for variant, count in zip((PREFILL, DECODE), counts, strict=True))

    def phase(base: dict[str, float], changes: Mapping[str, float] | None) -> PhaseObservation:
        fields: dict[str, Any] = {name: Known(value) for name, value in {**base, **(changes or {})}.items()}
        return PhaseObservation(**fields)

    first = phase({"requests_per_second": 8.0, "mean_tokens": 1155.0, "attainment": 1.0}, prefill)
    second = phase({"requests_per_second": 8.0, "mean_tokens": 211.0, "tokens_per_second": 1688.0, "attainment": 1.0}, decode)
    more: dict[str, Any] = {name: Known(value) for name, value in whole.items()}
    seen = ServiceObservation(KEY, now, 15.0, first, second, **more)
    allocation = dict(zip((PREFILL, DECODE), counts, strict=True))
    found = ServiceView(
        replace(given.service_input(), variants=statuses), seen, allocation, gauges or {phase: PhaseGauges() for phase in Phase}
    )
    fleet: Fleet = hardware.fleet()
    return View(now, fleet, {KEY: found})


def decided(policy: Policy, given: View) -> tuple[int, int] | None:
    allocation = policy.decide(given).get(KEY)
    return None if allocation is None else (allocation[PREFILL], allocation[DECODE])


def test_hpa_scales_by_the_ratio_of_latency_to_target() -> None:
    late = view(decode={"latency_percentile_seconds": 0.02}, ttft_percentile_seconds=1.45)
    assert decided(LatencyHpa(), late) == (3, 2)  # 2 x 1.45 = 2.9; a shrink of decode waits for the window
    assert decided(LatencyHpa(), view(ttft_percentile_seconds=1.05)) == (2, 2)  # inside the tolerance
    policy = LatencyHpa(stabilisation_seconds=30.0)
    assert decided(policy, late) == (3, 2)
    later = view(now=340.0, decode={"latency_percentile_seconds": 0.02}, ttft_percentile_seconds=1.0)
    assert decided(policy, later) == (2, 1)


def test_the_stabilisation_window_keeps_the_highest_wish() -> None:
    stabiliser = Stabiliser(300.0)
    assert stabiliser.settle(0.0, 5, 5) == 5
    assert stabiliser.settle(200.0, 2, 5) == 5
    assert stabiliser.settle(301.0, 2, 5) == 2


def test_hpa_on_utilisation_sees_a_decode_phase_that_is_always_busy() -> None:
    busy = {Phase.PREFILL: PhaseGauges(busy_share=0.7), Phase.DECODE: PhaseGauges(busy_share=1.0)}
    assert decided(UtilisationHpa(), view(gauges=busy)) == (2, 3)


@pytest.mark.parametrize(("ttft", "tpot", "expected"), [(0.5, 1.0, (3, 1)), (1.0, 0.5, (1, 3)), (0.97, 0.99, None)])
def test_naive_shifts_one_replica_to_the_phase_with_more_misses(
    ttft: float, tpot: float, expected: tuple[int, int] | None
) -> None:
    assert decided(NaiveShift(), view(decode={"attainment": tpot}, ttft_attainment=ttft)) == expected


def test_heteroscale_keeps_its_ratio_and_waits_out_its_cooldown() -> None:
    policy = HeteroScale()
    busy = {"tokens_per_second": 16_000.0}
    grown = decided(policy, view(now=120.0, decode=busy))
    assert grown == (6, 2)  # at 1,155 + 211 tokens an A100 in decode needs 2.2 in prefill: the pool is full at that ratio
    assert decided(policy, view(now=200.0, counts=(4, 2), decode=busy)) is None  # 180 s have not passed
    assert decided(policy, view(now=301.0, counts=(4, 2), decode=busy)) == (6, 2)
    assert decided(HeteroScale(), view(now=30.0, decode=busy)) is None  # it has not seen a minute of traffic


def test_token_keda_divides_tokens_in_flight_by_speed_and_kv_usage_by_its_share() -> None:
    gauges = {Phase.PREFILL: PhaseGauges(queued_prompt_tokens=30_000), Phase.DECODE: PhaseGauges(kv_usage_sum=2.5)}
    found = decided(TokenKeda(), view(gauges=gauges))
    assert found is not None
    assert found[0] == 4  # 30,000 / 15,700 per second / (0.93 s x 0.65) = 3.2
    assert found[1] == 4  # 2.5 / 0.8 = 3.1


def test_slo_keda_adds_a_replica_to_the_phase_that_misses() -> None:
    assert decided(SloKeda(), view(ttft_attainment=0.9)) == (3, 2)
    assert decided(SloKeda(), view(decode={"attainment": 0.9}, ttft_attainment=0.99)) == (2, 3)


def test_dynamo_divides_offered_tokens_by_profiled_throughput_and_keeps_its_budget() -> None:
    def dynamo(rate: float) -> tuple[int, int] | None:
        given = view(prefill={"requests_per_second": rate}, ttft_mean_seconds=1.0)
        return decided(DynamoSla(), given)

    assert dynamo(8.0) == (1, 1)
    assert dynamo(30.0) == (3, 2)  # 34,650 prompt tokens/s over 15,700; 6,330 answer tokens/s over 5,300
    most = dynamo(200.0)
    assert most is not None
    assert sum(most) == 8


def test_every_controller_survives_a_run() -> None:
    for name in POLICIES:
        result = run_named(name, WORLD, 0)
        assert result.policy == name
        assert result.requests > 300
        assert result.gpu_hours["a100"] <= 8 * 60.0 / 3600.0


def test_an_unknown_controller_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'nobody' is none of equipoise, .*oracle"):
        run_named("nobody", WORLD, 0)


def test_hindsight_finds_the_split_that_every_other_one_loses_to() -> None:
    traffic = alternation(20.0, 1, (4000, 20, 4.0), (300, 400, 10.0))
    world = World((a100(4),), (service(traffic, split(2, 2, "a100")),), 40.0)
    assert len(full_splits(world)) == 3
    best, splits = best_static(world, 0, trim=False)
    others = [best_static(world, 0, candidates=[candidate], trim=False)[0].goodput for candidate in full_splits(world)]
    assert best.goodput == max(others)
    assert best.detail == "{}P{}D".format(splits[KEY][Phase.PREFILL, "a100"], splits[KEY][Phase.DECODE, "a100"])
    found = frontier(world, 0)
    assert found[0].policy == "best-static"
    assert found[0].goodput >= best.goodput - 0.002
    costs = [result.cost_usd for result in found[1:]]
    assert costs == sorted(costs, reverse=True)
    oracle = run_named("oracle", world, 0)
    assert oracle.goodput >= best.goodput
