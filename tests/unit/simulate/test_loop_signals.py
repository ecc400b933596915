"""What the loop hands to `observe` is what real metrics pages would have given it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.assemble import assemble
from equipoise.observe.census import take_census
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.exposition import parse_page, wanted_names
from equipoise.observe.ring import PodPage, Ring, Round
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import Known, ServiceObservation, Unknown
from equipoise.perf.types import StepTimes, Targets
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.metrics.exposition import Exposition
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import EngineLimits, ReplicaSpec
from equipoise.simulate.loop.metrics import ReadMetrics
from equipoise.simulate.loop.samples import COUNTERS, HISTOGRAMS, Sample, extrapolated_increase, take_sample
from equipoise.simulate.loop.setup import EPOCH_SECONDS, SignalSource, World
from equipoise.simulate.loop.watcher import Watcher
from equipoise.simulate.traffic.plan import alternate

KEY = ServiceKey("prod", "chat")
TIMES = StepTimes(3.417e-3, 1.839e-5, 5.727e-10, 6.380e-3, 1.091e-5, 4.175e-8, "test")
PODS = (("a", Phase.PREFILL), ("b", Phase.PREFILL), ("c", Phase.DECODE))


def run_cluster(metrics: type[ReplicaMetrics], seconds: float = 40.0) -> Iterator[tuple[float, Cluster]]:
    """One busy little cluster with refusals, looked at every five seconds."""
    cluster = Cluster(metrics=metrics, patience_seconds=5.0)
    for name, phase in PODS:
        limits = EngineLimits(max_num_queued_tokens=12_000)
        cluster.add(name, ReplicaSpec(TIMES, 60_000, 131_072, node=name, limits=limits), phase, 0.0)
    at = 0.0
    yield at, cluster
    for index, arrival in enumerate(alternate([("azure-conv", seconds, 45.0)]).arrivals(seed=3)):
        while arrival.at_seconds > at + 5.0:
            at += 5.0
            cluster.advance_to(at)
            yield at, cluster
        cluster.advance_to(arrival.at_seconds)
        cluster.submit(Request(index, arrival.at_seconds, arrival.prompt_tokens, arrival.output_tokens), arrival.at_seconds)


def scope() -> ServiceScope:
    pods: dict[Phase, tuple[PodScope, ...]] = {
        phase: tuple(PodScope(name, EPOCH_SECONDS - 600.0, phase.value) for name, own in PODS if own is phase) for phase in Phase
    }
    return ServiceScope(KEY, "vllm", "chat", Targets(1.0, 0.05), pods)


def from_pages(ring: Ring, now: float) -> ServiceObservation:
    """As the operator's direct scrape reads them (observe.direct)."""
    settings = ObserveSettings()
    roll_call = ring.roll_call()
    windows = {KEY: ring.window_seconds}
    census = take_census([scope()], roll_call, {KEY: 5.0}, windows, settings, now)
    readings = ring.read(VLLM, census.cold_pods)
    phases = {phase: census.phases[KEY, phase] for phase in Phase}
    return assemble(scope(), VLLM, readings, phases, census.problems[KEY], 5.0, settings, now)


def test_the_loop_observes_what_parsed_metrics_pages_say() -> None:
    ring, names = Ring(ObserveSettings().minimum_window_seconds), wanted_names(VLLM)
    world = World((), (), 40.0, interval_seconds=5.0)
    pages: dict[str, Exposition] = {}
    watcher: Watcher | None = None
    compared = 0
    for now, cluster in run_cluster(ReplicaMetrics):
        found = {}
        for name, phase in PODS:
            replica = cluster.replicas[name]
            metrics = replica.metrics
            assert metrics is not None
            watcher = watcher or Watcher(KEY, "chat", metrics, world, 0)
            watcher.scrape(name, phase, phase.value, replica, now)
            page = pages.setdefault(name, Exposition(replica, metrics, "chat"))
            found[KEY, name] = PodPage(phase, phase.value, parse_page(page.page(now), names))
        ring.add(Round(now + EPOCH_SECONDS, found))
        if now >= 15.0:
            assert watcher is not None
            expected, seen = from_pages(ring, now + EPOCH_SECONDS), watcher.observe(scope(), now)
            assert plain(seen) == plain(expected)
            assert isinstance(seen.prefill.requests_per_second, Known)
            compared += 1
    assert compared >= 4
    assert isinstance(seen.prefill.refused_requests_per_second, Known)
    assert seen.prefill.refused_requests_per_second.value > 0.0


def plain(observation: ServiceObservation) -> Any:
    """Rounded, so that sums in another order are equal."""

    def rounded(value: Any) -> Any:
        if isinstance(value, Known):
            return Known(float(f"{value.value:.9g}"), None if value.samples is None else round(value.samples, 6))
        if isinstance(value, float):
            return float(f"{value:.9g}")
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        if hasattr(value, "__dataclass_fields__") and not isinstance(value, Unknown):
            return {name: rounded(getattr(value, name)) for name in value.__dataclass_fields__}
        if isinstance(value, tuple):
            return tuple(rounded(item) for item in value)
        return value

    return rounded(observation)


def test_the_lean_metrics_give_what_is_read_of_the_full_ones() -> None:
    full = [read_of(cluster, now) for now, cluster in run_cluster(ReplicaMetrics)]
    lean = [read_of(cluster, now) for now, cluster in run_cluster(ReadMetrics)]
    assert lean == full
    assert all(sum(counters.values()) > 0 for counters, _, _ in lean[-1])


def read_of(cluster: Cluster, now: float) -> list[Any]:
    """Of each replica, what the metric table reads of its phase."""
    result: list[Any] = []
    for replica in cluster.replicas.values():
        assert replica.metrics is not None
        sample = take_sample(replica, replica.metrics, now, now)
        wanted = {item.reading for item in VLLM.instruments if replica.role in item.phases}
        counters = {reading: value for reading, value in zip(COUNTERS, sample.counters, strict=True) if reading in wanted}
        buckets = {reading: counts for reading, counts in zip(HISTOGRAMS, sample.buckets, strict=True) if reading in wanted}
        result.append((counters, buckets, (sample.running, sample.waiting, sample.waiting_for_capacity, sample.kv_usage)))
    return result


def sample(at: float, count: float) -> Sample:
    return Sample(at, (count,), (), 0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(10.0, 100.0), (25.0, 130.0), (40.0, 160.0), (55.0, 190.0)], 120.0),  # 2/s, taken to both edges of 60 s
        ([(10.0, 5.0), (25.0, 35.0), (40.0, 65.0), (55.0, 95.0)], 105.0),  # never below where the counter was zero
        ([(40.0, 100.0), (55.0, 130.0)], 55.0),  # far from the start: half a gap and no more
        ([(55.0, 130.0)], None),
    ],
)
def test_increase_is_extrapolated_as_prometheus_does_it(counts: list[tuple[float, float]], expected: float | None) -> None:
    found = extrapolated_increase([sample(at, count) for at, count in counts], 0, 0.0, 60.0)
    assert found == (None if expected is None else pytest.approx(expected))


def test_lost_scrapes_and_outages_make_signals_unknown_and_not_zero() -> None:
    world = World((), (), 40.0, interval_seconds=5.0, outages=((0.0, 1000.0),))
    for source in SignalSource:
        watcher: Watcher | None = None
        for now, cluster in run_cluster(ReadMetrics, 21.0):
            for name, phase in PODS:
                replica = cluster.replicas[name]
                assert replica.metrics is not None
                watcher = watcher or Watcher(KEY, "chat", replica.metrics, replace(world, source=source), 0)
                watcher.scrape(name, phase, phase.value, replica, now)
        assert watcher is not None
        seen = watcher.observe(scope(), 20.0)
        assert isinstance(seen.prefill.requests_per_second, Unknown)
        assert isinstance(seen.decode.running_requests, Unknown)
