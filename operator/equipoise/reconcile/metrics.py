"""Metrics of the operator, in a registry of its own, so that several operators can live in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

from equipoise.api.identity import Phase, ServiceKey
from equipoise.reconcile.queue import Outcome

_RECONCILE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROUND_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SERVICE: Final = ("namespace", "service")


class Metrics:
    """All series of the operator. What belongs to a service is removed by `forget` when the service goes."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        if registry is None:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._of_services: list[MetricWrapperBase] = []
        self._variants: dict[ServiceKey, set[tuple[str, str, str]]] = {}

        self.reconcile_seconds = self._histogram(
            "equipoise_reconcile_seconds", "Duration of one reconcile of one service.", ("outcome",), _RECONCILE_BUCKETS
        )
        self.queue_wait_seconds = self._histogram(
            "equipoise_queue_wait_seconds", "Time a key was ready before a worker took it.", (), _RECONCILE_BUCKETS
        )
        self.queue_depth = self._gauge("equipoise_queue_depth", "Keys ready and waiting for a worker.")
        self.queue_delayed = self._gauge("equipoise_queue_delayed", "Keys waiting for their time: backoff or requeue.")
        self.queue_failing = self._gauge("equipoise_queue_failing", "Services whose last reconcile failed.")
        self.capacity_round_seconds = self._histogram(
            "equipoise_capacity_round_seconds", "Duration of one capacity round over all services.", ("outcome",), _ROUND_BUCKETS
        )
        self.api_writes = Counter(
            "equipoise_api_writes",
            "Writes to the Kubernetes API by verb, kind and result (ok, or the error's name).",
            ("verb", "kind", "result"),
            registry=self.registry,
        )
        self.leader = self._gauge("equipoise_leader", "1 while this process leads.")
        self.leader_transitions = Counter(
            "equipoise_leader_transitions", "Times this process became leader.", registry=self.registry
        )
        self.watch_age_seconds = self._gauge(
            "equipoise_watch_age_seconds", "Time since the last sign of life of a kind: a watch event or a list.", ("kind",)
        )
        self.watch_events = Counter(
            "equipoise_watch_events", "Watch events taken in, by kind and type.", ("kind", "type"), registry=self.registry
        )
        self.watch_missed = Counter(
            "equipoise_watch_missed",
            "Objects that a list had to correct because the watch had not told of them.",
            ("kind",),
            registry=self.registry,
        )
        self.stored_objects = self._gauge("equipoise_stored_objects", "Objects held in memory, by kind.", ("kind",))
        self.events_dropped = Counter(
            "equipoise_events_dropped",
            "Kubernetes Events not written: rate limit, full buffer or an error.",
            ("why",),
            registry=self.registry,
        )
        self.loop_lag_seconds = self._gauge(
            "equipoise_loop_lag_seconds", "How late the event loop wakes a sleeper: worst of the last minute."
        )
        self.info = self._gauge("equipoise_build_info", "1, with the version as a label.", ("version",))

        self.decisions = self._service_counter(
            "equipoise_decisions", "Decisions by verdict and by the rule that decided.", ("verdict", "reason")
        )
        self.moves = self._service_counter("equipoise_moves", "Replicas moved, by kind of move.", ("kind",))
        self.observed_seconds = self._service_gauge(
            "equipoise_phase_latency_seconds",
            "Observed latency of a phase at the target percentile (TTFT leg or TPOT).",
            ("phase",),
        )
        self.target_seconds = self._service_gauge(
            "equipoise_phase_target_seconds", "Target of a phase (TTFT or TPOT).", ("phase",)
        )
        self.attainment = self._service_gauge("equipoise_phase_attainment", "Share of requests inside the target.", ("phase",))
        self.lag = self._service_gauge(
            "equipoise_phase_lag", "How far a phase is past its target; 1 is exactly at it.", ("phase",)
        )
        self.demand = self._service_gauge(
            "equipoise_phase_demand_tokens_per_second", "Offered work, the queue included.", ("phase",)
        )
        self.capacity = self._service_gauge(
            "equipoise_phase_capacity_tokens_per_second", "What ready replicas sustain.", ("phase",)
        )
        self.desired_replicas = self._service_gauge(
            "equipoise_variant_desired_replicas", "Replicas asked for.", ("phase", "variant", "pool")
        )
        self.ready_replicas = self._service_gauge(
            "equipoise_variant_ready_replicas", "Replicas that serve.", ("phase", "variant", "pool")
        )
        self.cost = self._service_gauge("equipoise_cost_usd_per_hour", "Price of all GPUs the service holds.")
        self.condition = self._service_gauge(
            "equipoise_condition", "1 for a condition that is True, 0 for False.", ("condition",)
        )

        self.pool_gpus = self._gauge("equipoise_pool_gpus", "GPUs of a pool by state: total, usable, free.", ("pool", "state"))

    def follow_queue(self, depth: Callable[[], float], delayed: Callable[[], float], failing: Callable[[], float]) -> None:
        """Read the queue's figures when scraped."""
        self.queue_depth.set_function(depth)
        self.queue_delayed.set_function(delayed)
        self.queue_failing.set_function(failing)

    def started(self, waited_seconds: float) -> None:
        """QueueObserver: a worker took a key."""
        self.queue_wait_seconds.observe(waited_seconds)

    def finished(self, worked_seconds: float, outcome: Outcome) -> None:
        """QueueObserver: a reconcile ended."""
        self.reconcile_seconds.labels(outcome.value).observe(worked_seconds)

    def wrote(self, verb: str, kind: str, result: str) -> None:
        """Count one write to the API."""
        self.api_writes.labels(verb, kind, result).inc()

    def set_phase(self, gauge: Gauge, key: ServiceKey, phase: Phase, value: float | None) -> None:
        """Set a phase's figure; None (unknown) removes the series, for unknown is not zero."""
        if value is None:
            gauge.remove(key.namespace, key.name, phase.value)
        else:
            gauge.labels(key.namespace, key.name, phase.value).set(value)

    def set_variants(self, key: ServiceKey, variants: Mapping[tuple[str, str, str], tuple[int, int]]) -> None:
        """Set (desired, ready) per (phase, variant, pool) and remove the series of variants that are gone."""
        for labels in self._variants.get(key, set()) - variants.keys():
            self.desired_replicas.remove(key.namespace, key.name, *labels)
            self.ready_replicas.remove(key.namespace, key.name, *labels)
        self._variants[key] = set(variants)
        for labels, (desired, ready) in variants.items():
            self.desired_replicas.labels(key.namespace, key.name, *labels).set(desired)
            self.ready_replicas.labels(key.namespace, key.name, *labels).set(ready)

    def set_pools(self, pools: Mapping[str, Mapping[str, int]]) -> None:
        """Set GPUs per pool and state, and remove pools that are gone."""
        self.pool_gpus.clear()
        for pool, states in pools.items():
            for state, count in states.items():
                self.pool_gpus.labels(pool, state).set(count)

    def forget(self, key: ServiceKey) -> None:
        """Remove every series of a service that is gone."""
        self._variants.pop(key, None)
        for metric in self._of_services:
            metric.remove_by_labels({"namespace": key.namespace, "service": key.name})

    def retain(self, services: Set[ServiceKey]) -> None:
        """Remove the series of every service that is not among these: a round under way may write after `forget`."""
        known = {
            ServiceKey(sample.labels["namespace"], sample.labels["service"])
            for metric in self._of_services
            for family in metric.collect()
            for sample in family.samples
        }
        for key in known - services:
            self.forget(key)

    def _histogram(self, name: str, text: str, labels: Iterable[str], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, tuple(labels), buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, text, tuple(labels), registry=self.registry)

    def _service_gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        gauge = Gauge(name, text, (*_SERVICE, *labels), registry=self.registry)
        self._of_services.append(gauge)
        return gauge

    def _service_counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        counter = Counter(name, text, (*_SERVICE, *labels), registry=self.registry)
        self._of_services.append(counter)
        return counter
