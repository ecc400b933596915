"""The closed-form engine against the step-by-step reference, and what must hold whatever the load."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.network import Network
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import EngineLimits, NetworkSettings, Outcome, ReplicaSpec

# Odd figures on purpose: two events at exactly the same moment may come in either order in the two modes.
STEP_TIMES = StepTimes(3.4170421e-3, 1.8394971e-4, 5.7273199e-9, 6.3798437e-3, 1.0908549e-4, 4.1751309e-6, "test")


@dataclass
class Script:
    """Requests and what happens to replicas, at odd times."""

    requests: list[tuple[float, int, int]]
    prefills: int
    decodes: int
    kv_blocks: int
    budget: int
    slots: int
    queued_tokens: int | None
    events: list[tuple[float, str, int]] = field(default_factory=list)


def odd(draw: st.DrawFn, low: int, high: int) -> float:
    return draw(st.integers(low, high)) * 1.000173e-3 + 1.7e-7 * draw(st.integers(1, 997))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.integers(1, 40))
    at = 0.0
    requests = []
    for _ in range(count):
        at += odd(draw, 0, 60)
        requests.append((at, draw(st.integers(1, 200)), draw(st.integers(1, 60))))
    kinds = st.sampled_from(["flip", "abort", "kill", "drain"])
    events = [(odd(draw, 0, 1500), draw(kinds), draw(st.integers(0, 39))) for _ in range(draw(st.integers(0, 4)))]
    return Script(
        requests,
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(20, 80)),
        draw(st.sampled_from([64, 256, 4096])),
        draw(st.sampled_from([2, 5, 64])),
        draw(st.sampled_from([None, None, 300])),
        sorted(events),
    )


def play(script: Script, step_by_step: bool) -> tuple[list[Request], Cluster]:
    ended: list[Request] = []
    network = Network(NetworkSettings(post_seconds=0.00151234))
    cluster = Cluster(network=network, on_done=ended.append, patience_seconds=20.0003, step_by_step=step_by_step)
    limits = EngineLimits(
        max_num_batched_tokens=script.budget,
        max_num_seqs=script.slots,
        max_num_queued_tokens=script.queued_tokens,
        kv_lease_seconds=2.0,
    )
    names = []
    for number in range(script.prefills + script.decodes):
        phase = Phase.PREFILL if number < script.prefills else Phase.DECODE
        spec = ReplicaSpec(
            STEP_TIMES, script.kv_blocks * 16, 131_072, node=f"node-{number}", link_bytes_per_second=1.003e9, limits=limits
        )
        cluster.add(f"replica-{number}", spec, phase, 0.0)
        names.append(f"replica-{number}")
    requests = [Request(index, *request) for index, request in enumerate(script.requests)]
    todo: list[tuple[float, str, int]] = [(request.arrival, "arrive", request.index) for request in requests] + script.events
    for at, kind, number in sorted(todo):
        cluster.advance_to(at)
        name = names[number % len(names)]
        if kind == "arrive":
            cluster.submit(requests[number], at)
        elif kind == "abort":
            if requests[number % len(requests)].arrival < at:
                cluster.abort(requests[number % len(requests)], at)
        elif name in cluster.replicas:
            replica = cluster.replicas[name]
            if kind == "flip" and replica.role is not None:
                cluster.flip(name, replica.role.other, at)
            elif kind == "kill":
                cluster.remove(name, at)
            elif kind == "drain":
                cluster.drain(name, at, grace_seconds=0.50017)
        for replica in cluster.replicas.values():
            assert 0 <= replica.used_blocks <= replica.total_blocks
    limit = 200_000
    while (at_next := cluster.next_event_time()) is not None and limit:
        cluster.advance_to(at_next)
        limit -= 1
    assert limit, "the cluster never comes to rest"
    assert sorted(request.index for request in ended) == [request.index for request in requests], (
        "every request ends exactly once"
    )
    return requests, cluster


def figures(request: Request) -> tuple[object, ...]:
    return request.outcome, request.cause, request.preemptions, request.generated if request.outcome is Outcome.FINISHED else None


TIMES = ("prefill_scheduled", "prefill_end", "transfer_start", "transfer_end", "decode_scheduled", "first_token", "finish")


@settings(max_examples=120, deadline=None)
@given(scripts())
def test_closed_form_equals_step_by_step(script: Script) -> None:
    fast, fast_cluster = play(script, step_by_step=False)
    slow, slow_cluster = play(script, step_by_step=True)
    for one, other in zip(fast, slow, strict=True):
        assert figures(one) == figures(other)
        for name in TIMES:
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-7), (one, name)
    for name, replica in fast_cluster.replicas.items():
        twin = slow_cluster.replicas[name]
        assert replica.metrics is not None
        assert twin.metrics is not None
        replica.metrics.collect(1e9)
        twin.metrics.collect(1e9)
        assert replica.metrics.generation_tokens == twin.metrics.generation_tokens
        assert replica.metrics.inter_token_latency.counts == twin.metrics.inter_token_latency.counts
        assert replica.metrics.inter_token_latency.total == pytest.approx(twin.metrics.inter_token_latency.total, abs=1e-6)
        assert replica.metrics.iteration_tokens.counts == twin.metrics.iteration_tokens.counts
        assert replica.metrics.time_to_first_token.count == twin.metrics.time_to_first_token.count
        assert replica.metrics.preemptions == twin.metrics.preemptions


@settings(max_examples=60, deadline=None)
@given(scripts())
def test_nothing_is_left_behind(script: Script) -> None:
    requests, cluster = play(script, step_by_step=False)
    for replica in cluster.replicas.values():
        assert replica.used_blocks == 0, "KV blocks leak"
        assert replica.queued_tokens == 0
        assert replica.promised == 0
        assert replica.is_idle
        assert replica.batch.size == 0
        assert replica.batch.context_tokens == 0
    for request in requests:
        if request.outcome is Outcome.FINISHED:
            moments = [request.arrival, request.prefill_queued, request.prefill_scheduled, request.prefill_end]
            moments += [
                request.transfer_start,
                request.transfer_end,
                request.decode_scheduled,
                request.first_token,
                request.finish,
            ]
            assert moments == sorted(moments)
            assert request.generated == request.output_tokens
        else:
            assert request.cause


@settings(max_examples=60, deadline=None)
@given(scripts(), st.lists(st.integers(1, 2000), max_size=12))
def test_looking_changes_nothing(script: Script, looks: list[int]) -> None:
    """Bringing counters up to date in the middle of a span must not move any later event."""
    plain, _ = play(script, step_by_step=False)
    ended: list[Request] = []
    cluster = Cluster(network=Network(NetworkSettings(post_seconds=0.00151234)), on_done=ended.append, patience_seconds=20.0003)
    limits = EngineLimits(
        max_num_batched_tokens=script.budget,
        max_num_seqs=script.slots,
        max_num_queued_tokens=script.queued_tokens,
        kv_lease_seconds=2.0,
    )
    for number in range(script.prefills + script.decodes):
        phase = Phase.PREFILL if number < script.prefills else Phase.DECODE
        spec = ReplicaSpec(
            STEP_TIMES, script.kv_blocks * 16, 131_072, node=f"node-{number}", link_bytes_per_second=1.003e9, limits=limits
        )
        cluster.add(f"replica-{number}", spec, phase, 0.0)
    if script.events:
        return
    requests = [Request(index, *request) for index, request in enumerate(script.requests)]
    todo = [(request.arrival, request.index) for request in requests] + [(look * 1.00031e-3 + 3.1e-7, -1) for look in looks]
    for at, number in sorted(todo):
        cluster.advance_to(at)
        if number < 0:
            cluster.sync(at)
        else:
            cluster.submit(requests[number], at)
    while (at_next := cluster.next_event_time()) is not None:
        cluster.advance_to(at_next)
    for one, other in zip(plain, requests, strict=True):
        assert figures(one) == figures(other)
        assert one.finish == pytest.approx(other.finish, abs=1e-7)
