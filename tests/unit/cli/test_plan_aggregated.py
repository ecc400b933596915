"""One pool for both phases: the closed form against simulated engines that mix prompts into decode steps."""

from __future__ import annotations

import random

import pytest

from equipoise.api.identity import Phase, Shape
from equipoise.cli.plan.aggregated import AggregatedCapacity, aggregated_capacity
from equipoise.fleet.catalogue import device
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.models import model_facts
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, StepTimes, Targets, Workload
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import ReplicaSpec


def llama(size: str = "8B") -> ModelFacts:
    found = model_facts(f"hf://any/Llama-3.1-{size}")
    assert isinstance(found, ModelFacts)
    return found


def shares_in_time(
    name: str, shape: Shape, model: ModelFacts, work: Workload, targets: Targets, rate: float, count: int
) -> tuple[float, float]:
    """Share of requests inside TTFT and inside TPOT on one simulated engine that reads the prompts itself."""
    times, kv_tokens = step_times(model, device(name), shape), kv_capacity_tokens(model, device(name), shape)
    assert isinstance(times, StepTimes)
    assert isinstance(kv_tokens, int)
    cluster, chance, now = Cluster(metrics=False), random.Random(11), 0.0
    engine = cluster.add("one", ReplicaSpec(times, kv_tokens, model.kv_bytes_per_token), Phase.DECODE, 0.0)
    requests = []
    for index in range(count):
        now += chance.expovariate(rate)
        cluster.advance_to(now)
        lengths = [max(1, round(chance.expovariate(1 / mean))) for mean in (work.mean_prompt_tokens, work.mean_output_tokens)]
        request = Request(index, now, lengths[0], 1 + lengths[1])
        request.local, request.decode_replica = True, engine
        assert cluster.send_decode(request, engine, now)
        requests.append(request)
    while (at := cluster.next_event_time()) is not None:
        cluster.advance_to(at)
    settled = requests[count // 10 :]
    ttft = [one.ttft_seconds for one in settled]
    tpot = [one.tpot_seconds for one in settled]
    assert None not in ttft
    return (
        sum(value is not None and value <= targets.ttft_seconds for value in ttft) / len(settled),
        sum(value is not None and value <= targets.tpot_seconds for value in tpot) / len(settled),
    )


@pytest.mark.parametrize(
    ("name", "shape", "size", "work", "targets", "beyond"),
    [
        ("H100", Shape(), "8B", Workload(1155, 211), Targets(0.5, 0.05), 1.4),
        ("A100-80GB", Shape(), "8B", Workload(2048, 28), Targets(1.0, 0.05), 2.0),  # careful with short answers
        ("L40S", Shape(), "8B", Workload(1155, 211), Targets(2.0, 0.1), 1.4),
        ("H100", Shape(4), "70B", Workload(1155, 211), Targets(1.0, 0.06), 1.4),
        ("A100-80GB", Shape(), "8B", Workload(500, 800), Targets(1.0, 0.05), 1.4),
    ],
)
def test_both_targets_hold_at_the_capacity_and_not_far_beyond(
    name: str, shape: Shape, size: str, work: Workload, targets: Targets, beyond: float
) -> None:
    model = llama(size)
    found = aggregated_capacity(model, device(name), shape, work, targets)
    assert isinstance(found, AggregatedCapacity)
    at = shares_in_time(name, shape, model, work, targets, found.requests_per_second, 2500)
    assert min(at) >= 0.92
    assert min(shares_in_time(name, shape, model, work, targets, beyond * found.requests_per_second, 2500)) < 0.90


def test_replicas_that_share_arrivals_sustain_more_and_refusals_have_numbers() -> None:
    model, work, targets = llama(), Workload(1155, 211), Targets(0.5, 0.05)
    rates = []
    for sharing in (1, 2, 4):
        found = aggregated_capacity(model, device("A100-80GB"), Shape(), work, targets, sharing)
        assert isinstance(found, AggregatedCapacity)
        rates.append(found.requests_per_second)
    assert rates == sorted(rates)
    assert rates[0] > 0
    slow = aggregated_capacity(model, device("L4"), Shape(), work, targets)
    assert isinstance(slow, Refusal)
    assert "takes 63 ms on L4, target 50 ms" in slow.message
