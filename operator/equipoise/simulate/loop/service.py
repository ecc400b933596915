"""One service in the loop: its cluster, pods, signals and score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide.policy import ServicePolicy, service_policy
from equipoise.decide.queues import queue_bound_tokens
from equipoise.decide.types import ServiceInput
from equipoise.observe.scope import ServiceScope
from equipoise.observe.types import ServiceObservation
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.step_times import step_times
from equipoise.perf.types import Refusal, StepTimes
from equipoise.render.names import deployment_name
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.routing import LeastLoaded, LightestDecode, RoundRobin, RoutingPolicy, ShortestPrefill
from equipoise.simulate.engine.types import EngineLimits, ReplicaSpec
from equipoise.simulate.loop.hardware import Hardware
from equipoise.simulate.loop.metrics import ReadMetrics
from equipoise.simulate.loop.pods import Pod, Pods
from equipoise.simulate.loop.policy import PhaseGauges
from equipoise.simulate.loop.score import Moment, ServiceScore
from equipoise.simulate.loop.setup import EPOCH_SECONDS, Routing, ServiceSetup, SignalSource, World
from equipoise.simulate.loop.watcher import Watcher
from equipoise.simulate.traffic.arrival import Arrival


class SimulatedService:
    """`bounded`: the operator's admission limits are set on its engines."""

    def __init__(self, setup: ServiceSetup, hardware: Hardware, world: World, bounded: bool, seed: int) -> None:
        policy = service_policy(setup.resource)
        if not isinstance(policy, ServicePolicy):
            raise ValueError(f"{setup.key}: " + "; ".join(reason.message for reason in policy))
        policy = replace(policy, shares_arrivals=world.prefill_routing is not Routing.ROUND_ROBIN)
        if not world.flips:
            policy = replace(policy, flip_supported=False, flip_reason="the engines of this world fix the role at the start")
        self.setup, self.policy, self.key = setup, policy, setup.key
        self._hardware, self._world, self._bounded = hardware, world, bounded
        self._done: list[Request] = []
        self.cluster = Cluster(
            _prefill_policy(world.prefill_routing),
            _decode_policy(world.decode_routing),
            on_done=self._done.append,
            patience_seconds=world.patience_seconds,
            metrics=ReadMetrics,
        )
        self.pods = Pods(self.key, self.cluster, hardware, world, self._spec, self._left, seed)
        self.score = ServiceScore(policy.targets)
        self.moments: list[Moment] = []
        self._arrivals: Iterator[Arrival] = iter(setup.arrivals(seed))
        self._next: Arrival | None = next(self._arrivals, None)
        self._submitted = 0
        self._watcher: Watcher | None = None
        self._seed = seed
        self._moved = (0, 0, 0)

    def begin(self, initial: Mapping[tuple[Phase, str], int], shapes: Mapping[tuple[Phase, str], Shape]) -> None:
        """The first replicas serve, and have been scraped idle for a while."""
        allocation = {
            Variant(self.key, phase, pool, shapes.get((phase, pool), Shape())): count
            for (phase, pool), count in initial.items()
            if count
        }
        self.pods.begin(allocation)
        first = next(iter(self.cluster.replicas.values()), None)
        metrics = first.metrics if first is not None else ReadMetrics(self._spec(next(iter(allocation)), ""))
        assert metrics is not None  # noqa: S101 - for the type checker: the cluster was told to keep metrics
        self._watcher = watcher = Watcher(self.key, self.policy.served_model_name, metrics, self._world, self._seed)
        for pod in self.pods.pods.values():
            pod.next_scrape = watcher.first_scrape_seconds(pod.name)
            for back in range(40, 0, -1):
                self._scrape(pod, -back * watcher.scrape_seconds + pod.next_scrape)

    def run_until(self, now: float) -> None:
        """Let requests come and everything happen up to `now`."""
        cluster, submitted, upcoming = self.cluster, self._submitted, self._next
        while upcoming is not None and upcoming.at_seconds <= now:
            at = upcoming.at_seconds
            cluster.advance_to(at)
            cluster.submit(
                Request(submitted, at, upcoming.prompt_tokens, upcoming.output_tokens, upcoming.hash_ids, upcoming.kind), at
            )
            submitted += 1
            upcoming = next(self._arrivals, None)
        self._submitted, self._next = submitted, upcoming
        cluster.advance_to(now)
        if len(self._done) > 4096:
            self.score.take(self._done)
            self._done.clear()

    def scrape_until(self, now: float) -> None:
        """Scrapes that are due by now. Between two rounds of Prometheus' own clock, call it as often as scrapes are due."""
        watcher = self._watching()
        for pod in self.pods.pods.values():
            if not pod.is_ready(now):
                pod.next_scrape = max(pod.next_scrape, now) if self._world.source is SignalSource.PODS else pod.next_scrape
                continue
            while pod.next_scrape <= now + 1e-9:
                self._scrape(pod, now)
                pod.next_scrape += watcher.scrape_seconds

    def next_scrape(self, now: float) -> float:
        """When the next one is due; infinite when no pod is there."""
        due = [pod.next_scrape for pod in self.pods.pods.values() if pod.is_ready(now)]
        return max(min(due), now) if due else float("inf")

    def _scrape(self, pod: Pod, now: float) -> None:
        if pod.draining_since is None:
            replica = self.cluster.replicas[pod.name]
            self._watching().scrape(pod.name, pod.variant.phase, deployment_name(pod.variant), replica, now)

    def observe(self, now: float) -> ServiceObservation:
        """The operator's observation of the window that ends now."""
        scope = ServiceScope(self.key, "vllm", self.policy.served_model_name, self.policy.targets, self.pods.scopes(now))
        return self._watching().observe(scope, now)

    def given(self, now: float) -> ServiceInput:
        """The service as decide() takes it."""
        created = EPOCH_SECONDS - 7200.0
        engine = self.policy.served_model_name  # the same as long as the run lasts
        return replace(self.policy.service_input(), variants=self.pods.statuses(now), created_seconds=created, engine=engine)

    def gauges(self) -> dict[Phase, PhaseGauges]:
        """Gauges of this moment."""
        return {phase: _gauges(self.cluster.in_routing[phase]) for phase in Phase}

    def note(self, now: float) -> None:
        """Remember this round for the plots."""
        statuses = self.pods.statuses(now)
        counts = {
            name: {phase: sum(getattr(s, name) for s in statuses if s.variant.phase is phase) for phase in Phase}
            for name in ("ready", "starting", "draining")
        }
        moved = (self.pods.moves.flips, self.pods.moves.starts, self.pods.moves.stops)
        flips, starts, stops = (new - old for new, old in zip(moved, self._moved, strict=True))
        self._moved = moved
        self.moments.append(Moment(now, counts["ready"], counts["starting"], counts["draining"], flips, starts, stops))

    def finish(self, most_seconds: float) -> None:
        """Let what was asked be answered, and score it all; what is left then is a miss."""
        cluster = self.cluster
        end = cluster.now + most_seconds
        while (at := cluster.next_event_time()) is not None and at <= end:
            cluster.advance_to(at)
        left = {id(request): request for replica in cluster.replicas.values() for request in replica.requests()}
        self.score.take(self._done)
        self.score.take(list(left.values()))
        self._done.clear()

    def _watching(self) -> Watcher:
        if self._watcher is None:
            raise RuntimeError(f"{self.key}: begin() comes first")
        return self._watcher

    def _left(self, pod: str, phase: Phase) -> None:
        if self._watcher is not None:
            self._watcher.left(pod, phase)

    def _spec(self, variant: Variant, node: str) -> ReplicaSpec:
        pool = self._hardware.pools[variant.pool]
        model, device = self.policy.model, pool.catalogue_device
        times, kv_tokens = step_times(model, device, variant.shape), kv_capacity_tokens(model, device, variant.shape)
        for answer in (times, kv_tokens):
            if isinstance(answer, Refusal):
                raise ValueError(f"{variant} cannot run: {answer.message}")
        assert isinstance(times, StepTimes) and isinstance(kv_tokens, int)  # noqa: S101, PT018 - for the type checker
        bound = queue_bound_tokens(model, device, variant.shape, self.policy.targets.ttft_seconds) if self._bounded else None
        return ReplicaSpec(
            step_times=_scaled(times, 1.0 / pool.speed),
            kv_tokens=kv_tokens,
            kv_bytes_per_token=model.kv_bytes_per_token,
            node=node,
            link_bytes_per_second=pool.network_bytes_per_second,
            pool=variant.pool,
            variant=str(variant),
            limits=EngineLimits(max_num_queued_tokens=bound, max_model_len=model.max_context_tokens),
        )


def _scaled(times: StepTimes, factor: float) -> StepTimes:
    if factor == 1.0:
        return times
    return StepTimes(
        times.prefill_constant * factor,
        times.prefill_per_token * factor,
        times.prefill_per_token_squared * factor,
        times.decode_constant * factor,
        times.decode_per_sequence * factor,
        times.decode_per_context_token * factor,
        f"{times.source}, × {factor:g}",
    )


def _prefill_policy(routing: Routing) -> RoutingPolicy:
    if routing is Routing.ROUND_ROBIN:
        return RoundRobin()
    return LeastLoaded() if routing is Routing.LEAST_LOADED else ShortestPrefill()


def _decode_policy(routing: Routing) -> RoutingPolicy:
    if routing is Routing.ROUND_ROBIN:
        return RoundRobin()
    return LeastLoaded() if routing is Routing.LEAST_LOADED else LightestDecode()


def _gauges(replicas: list[Replica]) -> PhaseGauges:
    return PhaseGauges(
        running_requests=sum(replica.batch.size + replica.prefilling_requests() for replica in replicas),
        waiting_requests=sum(len(replica.waiting) + len(replica.loading) + len(replica.loaded) for replica in replicas),
        queued_prompt_tokens=sum(replica.queued_tokens for replica in replicas),
        kv_usage_sum=sum(replica.kv_usage() for replica in replicas),
        kv_tokens_used=sum(replica.used_blocks * replica.block_size for replica in replicas),
        busy_share=sum(replica.busy for replica in replicas) / len(replicas) if replicas else 0.0,
    )
