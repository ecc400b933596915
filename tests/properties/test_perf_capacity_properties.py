from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, Precision, Shape
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.types import Device
from equipoise.perf.capacity import capacity_at_demand, replica_capacity
from equipoise.perf.memory import kv_capacity_tokens, shapes
from equipoise.perf.models import model_facts
from equipoise.perf.models.known import KNOWN
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload


def _facts(name: str) -> ModelFacts:
    found = model_facts(f"hf://any/{name}")
    assert isinstance(found, ModelFacts)
    return found


MODELS = tuple(_facts(row.hub_id.rpartition("/")[2]) for row in KNOWN)
models, devices, phases = (
    st.sampled_from(MODELS),
    st.sampled_from(sorted(DEVICES)).map(DEVICES.__getitem__),
    st.sampled_from(Phase),
)
shape = st.builds(Shape, st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 1, 2)), st.sampled_from(Precision))
workloads = st.builds(
    lambda prompt, output, hits, variability: Workload(
        prompt, output, hits, variability * prompt * prompt if variability else None
    ),
    st.floats(1, 100_000),
    st.floats(1, 20_000),
    st.floats(0, 1),
    st.one_of(st.none(), st.floats(1, 20)),
)
targets = st.builds(Targets, st.floats(0.01, 60), st.floats(0.001, 1), st.sampled_from((50.0, 90.0, 95.0, 99.0, 99.9)))
networks = st.floats(1e8, 1e12)
groups = st.integers(1, 8)


def value(answer: ReplicaCapacity | Refusal) -> float:
    """Tokens per second; a refusal is less than anything."""
    return answer.tokens_per_second if isinstance(answer, ReplicaCapacity) else 0.0


@given(phases, models, devices, shape, workloads, targets, networks, groups, st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_capacity_is_a_sound_number_or_a_refusal_that_says_why(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    size: Shape,
    work: Workload,
    goal: Targets,
    network: float,
    group: int,
    hop: bool,
) -> None:
    found = replica_capacity(
        phase, model, device, size, work, goal, network_bytes_per_second=network, kv_hop=hop, replicas_sharing_queue=group
    )
    if isinstance(found, Refusal):
        assert found.reason
        assert any(character.isdigit() for character in found.message)
        return
    assert math.isfinite(found.tokens_per_second)
    assert found.tokens_per_second > 0
    assert found.max_batch >= 1
    assert found.kv_tokens > 0
    assert 0 < found.service_seconds < math.inf
    assert 0 < found.utilisation <= 1 + 1e-9
    assert 0 <= found.attainable_share <= 1
    assert found.binds in {"compute", "target", "kv memory", "batch limit", "network"}


@given(phases, models, devices, shape, workloads, targets, networks, groups, st.floats(1, 10))
@settings(max_examples=300, deadline=None)
def test_a_looser_target_never_leaves_less(
    phase: Phase,
    model: ModelFacts,
    device: Device,
    size: Shape,
    work: Workload,
    goal: Targets,
    network: float,
    group: int,
    more: float,
) -> None:
    looser = replace(goal, **{"ttft_seconds" if phase is Phase.PREFILL else "tpot_seconds": more * _own(goal, phase)})
    tight, loose = (
        value(
            replica_capacity(
                phase, model, device, size, work, one, network_bytes_per_second=network, replicas_sharing_queue=group
            )
        )
        for one in (goal, looser)
    )
    assert loose >= tight * (1 - 1e-9)


def _own(goal: Targets, phase: Phase) -> float:
    return goal.ttft_seconds if phase is Phase.PREFILL else goal.tpot_seconds


@given(phases, models, devices, shape, workloads, targets, networks, st.floats(1, 4))
@settings(max_examples=300, deadline=None)
def test_more_memory_a_faster_link_and_company_never_leave_less(
    phase: Phase, model: ModelFacts, device: Device, size: Shape, work: Workload, goal: Targets, network: float, more: float
) -> None:
    base = value(replica_capacity(phase, model, device, size, work, goal, network_bytes_per_second=network))
    larger = replace(device, memory_bytes=int(device.memory_bytes * more))
    assert value(replica_capacity(phase, model, larger, size, work, goal, network_bytes_per_second=network)) >= base * (1 - 1e-9)
    assert value(replica_capacity(phase, model, device, size, work, goal, network_bytes_per_second=network * more)) >= base * (
        1 - 1e-9
    )
    shared = replica_capacity(phase, model, device, size, work, goal, network_bytes_per_second=network, replicas_sharing_queue=4)
    assert value(shared) >= base * (1 - 2e-3)  # Erlang's C against rho near nothing, to the step of the search


@given(phases, models, devices, workloads, targets, st.floats(0, 8))
@settings(max_examples=150, deadline=None)
def test_at_a_demand_the_fewest_replicas_that_carry_it_seem_enough_and_one_less_does_not(
    phase: Phase, model: ModelFacts, device: Device, work: Workload, goal: Targets, share: float
) -> None:
    rates = [
        value(
            replica_capacity(phase, model, device, Shape(), work, goal, network_bytes_per_second=12.5e9, replicas_sharing_queue=n)
        )
        for n in (1, 2, 3, 4)
    ]
    demand = share * rates[0]
    found = value(capacity_at_demand(phase, model, device, Shape(), work, goal, demand, network_bytes_per_second=12.5e9))
    slack = 3e-3  # the step of the search behind each rate
    assert rates[0] * (1 - slack) <= found <= max(rates) * (1 + slack)
    fewest = next((count for count, rate in enumerate(rates, 1) if count * rate >= demand), None)
    if fewest is not None and demand > 0:
        assert fewest * found >= demand * (1 - slack)
        assert (fewest - 1) * found <= demand * (1 + slack)


@given(models, devices, shape)
@settings(max_examples=200, deadline=None)
def test_step_times_are_positive_and_rise(model: ModelFacts, device: Device, size: Shape) -> None:
    times = step_times(model, device, size)
    if isinstance(times, Refusal):
        return
    assert isinstance(times, StepTimes)
    assert 0 < times.prefill_seconds(1, 1) < times.prefill_seconds(1000, 1e6) < math.inf
    assert 0 < times.decode_step_seconds(1, 100) < times.decode_step_seconds(10, 1e4) < math.inf


@given(models, devices, st.integers(1, 8), st.sets(st.sampled_from(Precision), min_size=1))
@settings(max_examples=200, deadline=None)
def test_every_shape_offered_fits_and_comes_smallest_first(
    model: ModelFacts, device: Device, gpus: int, precisions: set[Precision]
) -> None:
    offered = shapes(model, device, gpus_per_node=gpus, precisions=precisions)
    if isinstance(offered, Refusal):
        assert offered.message
        return
    assert offered
    sizes = [one.gpus_per_replica for one in offered]
    assert sizes == sorted(sizes)
    assert len(set(offered)) == len(offered)
    for one in offered:
        assert one.gpus_per_replica <= gpus
        assert not isinstance(kv_capacity_tokens(model, device, one), Refusal)


@given(workloads, st.floats(1, 3000))
def test_rounding_changes_capacity_little(any_work: Workload, prompt: float) -> None:
    squared = any_work.prompt_tokens_second_moment
    variability = None if squared is None else squared / any_work.mean_prompt_tokens**2
    work = replace(
        any_work, mean_prompt_tokens=prompt, prompt_tokens_second_moment=None if variability is None else variability * prompt**2
    )
    model, device, goal = MODELS[0], DEVICES["H100"], Targets(10, 0.1)
    for phase in Phase:
        exact, rounded = (
            value(replica_capacity(phase, model, device, Shape(), one, goal, network_bytes_per_second=1e15, kv_hop=False))
            for one in (work, work.rounded())
        )
        assert rounded == exact or abs(rounded / exact - 1) < 0.08
