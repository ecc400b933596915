"""What a lagging phase looks like from outside: the relations measured on a real pair, reproduced by the model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.metrics.families import kv_fetch_by_stage, waiting_by_reason
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import EngineLimits, Outcome, ReplicaSpec

# A small model on a slow device, so that a few requests are an overload.
STEP_TIMES = StepTimes(0.01, 2.0e-4, 1e-9, 0.01, 2.0e-4, 2e-7, "test")


@dataclass
class Seen:
    """Gauges of both replicas, every half second."""

    prefill_kv: list[float] = field(default_factory=list)
    prefill_waiting: list[float] = field(default_factory=list)
    prefill_running: list[int] = field(default_factory=list)
    decode_kv: list[float] = field(default_factory=list)
    decode_capacity: list[float] = field(default_factory=list)
    decode_deferred: list[float] = field(default_factory=list)
    decode_loaded: list[float] = field(default_factory=list)


def run(
    rate: float,
    prompt_tokens: int,
    output_tokens: int,
    seconds: float = 60.0,
    prefill_limits: EngineLimits | None = None,
    decode_limits: EngineLimits | None = None,
    prefill_kv: int = 40_000,
    decode_kv: int = 40_000,
) -> tuple[list[Request], Seen, Cluster]:
    cluster = Cluster()
    cluster.add(
        "prefill", ReplicaSpec(STEP_TIMES, prefill_kv, 3072, "a", limits=prefill_limits or EngineLimits()), Phase.PREFILL, 0.0
    )
    cluster.add(
        "decode", ReplicaSpec(STEP_TIMES, decode_kv, 3072, "b", limits=decode_limits or EngineLimits()), Phase.DECODE, 0.0
    )
    seen, requests = Seen(), []
    look = 0.5
    for index in range(int(rate * seconds)):
        at = index / rate
        while look < at:
            watch(cluster, look, seen)
            look += 0.5
        cluster.advance_to(at)
        requests.append(Request(index, at, prompt_tokens, output_tokens))
        cluster.submit(requests[-1], at)
    while (at_next := cluster.next_event_time()) is not None:
        cluster.advance_to(at_next)
    return requests, seen, cluster


def watch(cluster: Cluster, at: float, seen: Seen) -> None:
    cluster.sync(at)
    prefill, decode = cluster.replicas["prefill"], cluster.replicas["decode"]
    seen.prefill_kv.append(prefill.kv_usage())
    seen.prefill_waiting.append(reasons(prefill)["capacity"])
    seen.prefill_running.append(prefill.running_requests())
    seen.decode_kv.append(decode.kv_usage())
    seen.decode_capacity.append(reasons(decode)["capacity"])
    seen.decode_deferred.append(reasons(decode)["deferred"])
    assert decode.metrics is not None
    stages = kv_fetch_by_stage(decode, decode.metrics)
    assert stages["in_progress"] + stages["completed_waiting"] == reasons(decode)["deferred"]
    seen.decode_loaded.append(stages["completed_waiting"])


def reasons(replica: Replica) -> dict[str, float]:
    assert replica.metrics is not None
    return dict(waiting_by_reason(replica, replica.metrics))


def legs(cluster: Cluster) -> tuple[float, float]:
    means = []
    for replica in cluster.replicas.values():
        assert replica.metrics is not None
        replica.metrics.collect(1e9)
        histogram = replica.metrics.time_to_first_token
        means.append(histogram.total / histogram.count)
    return means[0], means[1]


def mean_ttft(requests: list[Request]) -> float:
    values = [request.ttft_seconds for request in requests if request.ttft_seconds is not None]
    return sum(values) / len(values)


def test_low_load_has_no_queue_and_the_legs_add_up() -> None:
    requests, seen, cluster = run(1.0, 800, 50)
    prefill_leg, decode_leg = legs(cluster)
    assert mean_ttft(requests) == pytest.approx(prefill_leg + decode_leg, rel=1e-9)
    assert prefill_leg == pytest.approx(STEP_TIMES.prefill_seconds(800, 800**2))
    assert max(seen.prefill_waiting) == max(seen.decode_capacity) == 0


def test_a_prompt_that_fits_one_step_never_shows_as_running_on_prefill() -> None:
    _, seen, _ = run(5.0, 800, 50)
    assert set(seen.prefill_running) == {0}
    _, seen, _ = run(5.0, 800, 50, prefill_limits=EngineLimits(max_num_batched_tokens=256))
    assert 1 in seen.prefill_running  # only while a prompt is split over steps


def test_prefill_overload_raises_its_leg_and_leaves_decode_without_a_queue() -> None:
    _, seen, cluster = run(8.0, 1200, 20)
    prefill_leg, decode_leg = legs(cluster)
    assert prefill_leg > 5.0
    assert decode_leg < 0.1
    assert max(seen.prefill_waiting) > 50
    assert max(seen.decode_capacity) <= 1  # the half step until a KV load can start
    assert max(seen.prefill_kv) < 0.5


def test_decode_overload_fills_the_prefill_kv_and_moves_the_queue_there() -> None:
    """The measured trap: decode lags, yet the prefill leg is the longer one."""
    _, seen, cluster = run(4.0, 1200, 600, prefill_kv=12_000, decode_kv=16_000)
    prefill_leg, decode_leg = legs(cluster)
    assert prefill_leg > decode_leg > 1.0
    # Measured on the real pair: usage up to 0.99, mean 0.60; capacity waiting in 68 of 97 samples, the others after the end.
    assert max(seen.prefill_kv) > 0.95
    assert sum(seen.prefill_kv) / len(seen.prefill_kv) > 0.6
    assert sum(waiting > 0 for waiting in seen.decode_capacity) > 0.7 * len(seen.decode_capacity)
    assert max(seen.prefill_waiting) > 20


def test_decode_overload_with_short_prompts_shows_in_the_decode_leg() -> None:
    requests, seen, cluster = run(10.0, 100, 600, prefill_kv=400_000, decode_kv=16_000)
    prefill_leg, decode_leg = legs(cluster)
    assert decode_leg > 3 * prefill_leg
    assert max(seen.decode_capacity) > 10
    assert max(seen.prefill_kv) < 0.5
    assert mean_ttft(requests) == pytest.approx(prefill_leg + decode_leg, rel=1e-9)


def test_decode_short_of_slots_shows_loaded_requests_as_deferred() -> None:
    _, seen, _ = run(10.0, 100, 200, decode_limits=EngineLimits(max_num_seqs=8))
    assert max(seen.decode_loaded) > 0
    assert max(seen.decode_capacity) > 5


def test_bounded_queue_refuses_and_keeps_the_rest_fast() -> None:
    """Measured on a real pair: accepted requests stayed below 1.5 s where the unbounded queue passed 5 s."""
    unbounded, _, _ = run(8.0, 1200, 20)
    bounded, _, cluster = run(8.0, 1200, 20, prefill_limits=EngineLimits(max_num_queued_tokens=4000))
    refused = [request for request in bounded if request.outcome is Outcome.REFUSED]
    assert refused
    metrics = cluster.replicas["prefill"].metrics
    assert metrics is not None
    assert metrics.rejections == {"max_num_queued_reqs": 0, "max_num_queued_tokens": len(refused)}
    assert max(request.ttft_seconds or 0.0 for request in bounded) < 1.5 < 5.0 < mean_ttft(unbounded)


def test_queue_limit_counts_whole_prompts_without_a_first_token_and_not_the_newcomer() -> None:
    limits = EngineLimits(max_num_queued_tokens=1000)
    cluster = Cluster()
    cluster.add("prefill", ReplicaSpec(STEP_TIMES, 40_000, 3072, "a", limits=limits), Phase.PREFILL, 0.0)
    cluster.add("decode", ReplicaSpec(STEP_TIMES, 40_000, 3072, "b"), Phase.DECODE, 0.0)
    requests = [Request(index, 0.0, 900, 5) for index in range(3)]
    for request in requests:
        cluster.submit(request, 0.0)
    assert [request.outcome for request in requests] == [Outcome.PENDING, Outcome.PENDING, Outcome.REFUSED]


def test_preemption_recomputes_and_costs_time_between_tokens() -> None:
    requests, _, cluster = run(6.0, 100, 400, seconds=20.0, decode_kv=4_000)
    assert sum(request.preemptions for request in requests) > 0
    metrics = cluster.replicas["decode"].metrics
    assert metrics is not None
    metrics.collect(1e9)
    assert metrics.preemptions == sum(request.preemptions for request in requests)
    assert metrics.prompt_tokens_by_source["local_compute"] == 0  # measured: recomputed tokens are not counted as prompts
    assert metrics.generation_tokens == sum(request.output_tokens for request in requests)
    assert metrics.inter_token_latency.count == metrics.generation_tokens - len(requests)
    assert metrics.inter_token_latency.total == pytest.approx(metrics.request_decode_time.total)
