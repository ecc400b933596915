"""Replicas that start, change phase, drain and die, and what becomes of the requests."""

from __future__ import annotations

import pytest

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.network import Network
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.routing import LeastLoaded, LightestDecode, RoundRobin, ShortestPrefill
from equipoise.simulate.engine.types import EngineLimits, NetworkSettings, Outcome, ReplicaSpec, Stage

STEP_TIMES = StepTimes(0.01, 1.0e-4, 1e-9, 0.01, 1.0e-4, 1e-7, "test")


def spec(node: str = "a", kv_tokens: int = 40_000, limits: EngineLimits | None = None, speed: float = 1.0) -> ReplicaSpec:
    times = StepTimes(0.01 / speed, 1.0e-4 / speed, 1e-9, 0.01 / speed, 1.0e-4 / speed, 1e-7 / speed, "test")
    return ReplicaSpec(times, kv_tokens, 100_000, node, limits=limits or EngineLimits())


def pair() -> Cluster:
    cluster = Cluster()
    cluster.add("p0", spec("a"), Phase.PREFILL, 0.0)
    cluster.add("d0", spec("b"), Phase.DECODE, 0.0)
    return cluster


def rest(cluster: Cluster) -> None:
    while (at := cluster.next_event_time()) is not None:
        cluster.advance_to(at)


def test_a_starting_replica_takes_nothing_until_it_is_ready() -> None:
    cluster = pair()
    cluster.add("p1", spec("c"), Phase.PREFILL, 0.0, startup_seconds=10.0)
    requests = [Request(index, index * 1.0, 100, 2) for index in range(20)]
    for request in requests:
        cluster.advance_to(request.arrival)
        cluster.submit(request, request.arrival)
    served = {request.index for request in requests if request.prefill_replica is cluster.replicas["p1"]}
    assert served
    assert min(served) >= 10


def test_flip_is_immediate_and_answers_in_progress_finish_where_they_are() -> None:
    cluster = pair()
    cluster.add("d1", spec("c"), Phase.DECODE, 0.0)
    requests = [Request(index, 0.0, 500, 200) for index in range(10)]
    for request in requests:
        cluster.submit(request, 0.0)
    cluster.advance_to(1.0)
    running = cluster.replicas["d1"].batch.size
    assert running > 0
    cluster.flip("d1", Phase.PREFILL, 1.0)
    later = [Request(10 + index, 1.0, 500, 5) for index in range(4)]
    for request in later:
        cluster.submit(request, 1.0)
    assert any(request.prefill_replica is cluster.replicas["d1"] for request in later)
    rest(cluster)
    assert {request.outcome for request in requests + later} == {Outcome.FINISHED}
    metrics = cluster.replicas["d1"].metrics
    assert metrics is not None
    metrics.collect(1e9)
    assert metrics.success["stop"] >= running  # its answers
    assert metrics.success["length"] > 0  # and prompts


def test_a_flip_with_a_delay_takes_nothing_meanwhile() -> None:
    cluster = pair()
    cluster.add("d1", spec("c"), Phase.DECODE, 0.0)
    cluster.flip("d1", Phase.PREFILL, 0.0, delay_seconds=2.0)
    assert [replica.name for replica in cluster.in_routing[Phase.PREFILL]] == ["p0"]
    assert [replica.name for replica in cluster.in_routing[Phase.DECODE]] == ["d0"]
    cluster.advance_to(2.0)
    assert [replica.name for replica in cluster.in_routing[Phase.PREFILL]] == ["p0", "d1"]


@pytest.mark.parametrize("victim", ["p0", "d0"])
def test_a_drain_loses_nothing(victim: str) -> None:
    cluster = pair()
    cluster.add("p1", spec("c"), Phase.PREFILL, 0.0)
    cluster.add("d1", spec("d"), Phase.DECODE, 0.0)
    gone: list[tuple[str, float]] = []
    cluster.on_retired = lambda replica, at: gone.append((replica.name, at))
    requests = [Request(index, index * 0.02, 800, 100) for index in range(60)]
    for request in requests:
        cluster.advance_to(request.arrival)
        if request.index == 30:
            cluster.drain(victim, request.arrival, grace_seconds=60.0)
        cluster.submit(request, request.arrival)
    rest(cluster)
    assert {request.outcome for request in requests} == {Outcome.FINISHED}
    assert [name for name, _ in gone] == [victim]
    last = max(
        request.transfer_end if victim == "p0" else request.finish
        for request in requests
        if victim
        in {
            request.prefill_replica.name if request.prefill_replica else "",
            request.decode_replica.name if request.decode_replica else "",
        }
    )
    assert gone[0][1] == pytest.approx(last)


def test_a_drain_that_outlives_its_grace_loses_the_rest_and_says_so() -> None:
    cluster = pair()
    request = Request(0, 0.0, 100, 10_000)
    cluster.submit(request, 0.0)
    cluster.advance_to(1.0)
    cluster.drain("d0", 1.0, grace_seconds=5.0)
    rest(cluster)
    assert request.outcome is Outcome.LOST
    assert "drain grace ended" in request.cause


def test_prefill_lost_between_the_legs_fails_on_decode_as_measured() -> None:
    cluster = pair()
    # Decode is full, so the second request's KV waits on prefill.
    cluster.add("d1", spec("c", kv_tokens=1600), Phase.DECODE, 0.0)
    cluster.set_role("d0", None)
    first, second = Request(0, 0.0, 1200, 300), Request(1, 0.0, 1200, 300)
    cluster.submit(first, 0.0)
    cluster.submit(second, 0.0)
    cluster.advance_to(1.0)
    assert second.stage is Stage.DECODE_WAITING
    cluster.remove("p0", 1.0)
    assert second.outcome is Outcome.LOST
    assert "before its KV was fetched" in second.cause
    metrics = cluster.replicas["d1"].metrics
    assert metrics is not None
    assert (metrics.failed_transfers, metrics.failed_notifications, metrics.success["error"]) == (2, 1, 1)
    rest(cluster)
    assert first.outcome is Outcome.FINISHED  # its KV was there already


def test_decode_lost_leaves_kv_on_prefill_until_the_lease_ends() -> None:
    cluster = pair()
    cluster.add("d1", spec("c", kv_tokens=1600), Phase.DECODE, 0.0)
    cluster.set_role("d0", None)
    requests = [Request(index, 0.0, 1200, 300) for index in range(2)]
    for request in requests:
        cluster.submit(request, 0.0)
    cluster.advance_to(1.0)
    cluster.remove("d1", 1.0)
    assert {request.outcome for request in requests} == {Outcome.LOST}
    prefill = cluster.replicas["p0"]
    assert prefill.metrics is not None
    assert prefill.kv_usage() > 0
    cluster.advance_to(30.9)
    assert prefill.kv_usage() > 0
    cluster.advance_to(31.0)
    assert prefill.kv_usage() == 0
    assert prefill.metrics.kv_expired == 1


def test_an_abort_frees_both_sides_and_leaves_no_sample() -> None:
    cluster = pair()
    request = Request(0, 0.0, 1000, 500)
    cluster.submit(request, 0.0)
    cluster.advance_to(1.0)
    assert request.stage is Stage.DECODING
    cluster.abort(request, 1.0)
    rest(cluster)
    decode = cluster.replicas["d0"]
    assert decode.metrics is not None
    decode.metrics.collect(1e9)
    assert decode.used_blocks == cluster.replicas["p0"].used_blocks == 0
    assert decode.metrics.e2e_request_latency.count == 0
    assert set(decode.metrics.success.values()) == {0}


def test_without_a_phase_requests_are_refused_with_the_reason() -> None:
    cluster = Cluster()
    cluster.add("p0", spec(), Phase.PREFILL, 0.0)
    request = Request(0, 0.0, 10, 10)
    cluster.submit(request, 0.0)
    assert (request.outcome, request.cause) == (Outcome.REFUSED, "no decode replica in routing")


def test_transfers_share_the_senders_link_in_order() -> None:
    cluster = Cluster(network=Network(NetworkSettings(post_seconds=0.0)))
    slow = ReplicaSpec(STEP_TIMES, 40_000, 100_000, "a", link_bytes_per_second=1e8)
    fast = ReplicaSpec(STEP_TIMES, 40_000, 100_000, "b", link_bytes_per_second=1e12)
    cluster.add("p0", slow, Phase.PREFILL, 0.0)
    cluster.add("d0", fast, Phase.DECODE, 0.0)
    requests = [Request(index, 0.0, 1600, 2) for index in range(3)]
    for request in requests:
        cluster.submit(request, 0.0)
    rest(cluster)
    ends = [request.transfer_end for request in requests]
    assert ends[1] - ends[0] == pytest.approx(1.6)  # 1600 tokens x 100 kB at 100 MB/s
    assert ends[2] - ends[1] == pytest.approx(1.6)


def test_a_handshake_is_paid_once_per_pair() -> None:
    cluster = Cluster(network=Network(NetworkSettings(handshake_seconds=5.0)))
    cluster.add("p0", spec("a"), Phase.PREFILL, 0.0)
    cluster.add("d0", spec("b"), Phase.DECODE, 0.0)
    requests = [Request(0, 0.0, 100, 2), Request(1, 10.0, 100, 2)]
    for request in requests:
        cluster.advance_to(request.arrival)
        cluster.submit(request, request.arrival)
    rest(cluster)
    assert (requests[0].ttft_seconds or 0) > 5.0 > 1.0 > (requests[1].ttft_seconds or 9)


def test_a_prefix_seen_before_is_not_computed_and_not_sent_again() -> None:
    cluster = pair()
    ids = tuple(range(4))
    requests = [Request(0, 0.0, 2048, 2, ids), Request(1, 10.0, 2100, 2, (*ids, 99))]
    for request in requests:
        cluster.advance_to(request.arrival)
        cluster.submit(request, request.arrival)
    rest(cluster)
    assert requests[1].cached_tokens == 2048
    assert requests[1].transfer_bytes < 0.1 * requests[0].transfer_bytes
    assert (requests[1].prefill_end - requests[1].arrival) < 0.1 * (requests[0].prefill_end - requests[0].arrival)


def test_token_aware_routing_uses_a_mixed_pool_in_proportion() -> None:
    shares = {}
    for name, policy in (("token", ShortestPrefill()), ("turn", RoundRobin())):
        cluster = Cluster(prefill_policy=policy, decode_policy=LightestDecode() if name == "token" else LeastLoaded())
        cluster.add("slow", spec("a"), Phase.PREFILL, 0.0)
        cluster.add("fast", spec("b", speed=3.0), Phase.PREFILL, 0.0)
        cluster.add("d0", spec("c", speed=4.0), Phase.DECODE, 0.0)
        cluster.add("d1", spec("d", speed=4.0), Phase.DECODE, 0.0)
        requests = [Request(index, index * 0.03, 1000, 5) for index in range(400)]
        for request in requests:
            cluster.advance_to(request.arrival)
            cluster.submit(request, request.arrival)
        rest(cluster)
        fast = cluster.replicas["fast"]
        shares[name] = sum(request.prefill_replica is fast for request in requests) / len(requests)
    assert shares["turn"] == 0.5
    assert 0.65 < shares["token"] < 0.85


def test_a_request_that_could_never_fit_is_refused() -> None:
    cluster = pair()
    request = Request(0, 0.0, 50_000, 10)
    cluster.submit(request, 0.0)
    assert (request.outcome, request.cause) == (Outcome.REFUSED, "longer than the KV cache")


def test_an_impatient_client_gives_up() -> None:
    cluster = Cluster(patience_seconds=5.0)
    cluster.add("p0", spec("a"), Phase.PREFILL, 0.0)
    cluster.add("d0", spec("b"), Phase.DECODE, 0.0)
    requests = [Request(index, index * 0.05, 2000, 2) for index in range(200)]
    for request in requests:
        cluster.advance_to(request.arrival)
        cluster.submit(request, request.arrival)
    rest(cluster)
    gone = [request for request in requests if request.outcome is Outcome.ABORTED]
    assert gone
    assert max(request.ttft_seconds or 0.0 for request in requests) < 6.1
