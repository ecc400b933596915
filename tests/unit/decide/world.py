"""A small fluid model of a fleet in virtual time for walking decide() through scenarios, and a table of speeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.decide.decide import decide
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.types import DecideInput, Decision, MoveKind, PhasePolicy, ServiceInput, VariantStatus
from equipoise.fleet.types import Device, Fleet, NodeCapacity, Pool
from equipoise.observe.types import Idle, Known, PhaseObservation, ServiceObservation
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

MODEL = ModelFacts("llama-8b", 8.03e9, 8.03e9, 32, 4096, 32, 8, 128, 131072)
TARGETS = Targets(1.0, 0.05, 95.0)
ONE = Shape()


def device(name: str, memory_gb: int = 80) -> Device:
    return Device(name, memory_gb * 10**9, 2e12, {Precision.BF16: 3e14}, 3e11, 8, 0.7, 0.7, 0.7, "test")


def pool(name: str, nodes: int = 1, gpus: int = 8, price: float = 2.0, memory_gb: int = 80) -> Pool:
    return Pool(name, device(name, memory_gb), tuple(NodeCapacity(f"{name}-{i}", gpus) for i in range(nodes)), price)


@dataclass(frozen=True)
class TablePerformance:
    """Tokens/s by (device, phase); an absent entry is a refusal. A shape of n GPUs is n times as fast."""

    rates: tuple[tuple[tuple[str, Phase], float], ...]
    offered_shapes: tuple[Shape, ...] = (ONE,)

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        if not any(name == pool.device.name for (name, _), _ in self.rates):
            return Refusal("DoesNotFit", f"{model.name} does not fit into {pool.device.memory_bytes / 1e9:.0f} GB")
        return self.offered_shapes

    def capacity(
        self, phase: Phase, model: ModelFacts, pool: Pool, shape: Shape, workload: Workload, targets: Targets,
        *, sharing: int = 1, speed: float = 1.0,
    ) -> ReplicaCapacity | Refusal:  # fmt: skip
        rate = dict(self.rates).get((pool.device.name, phase))
        if rate is None:
            return Refusal("TargetMissed", f"{phase.value} on {pool.device.name} misses the target")
        return ReplicaCapacity(phase, rate * speed * shape.gpus_per_replica, int(rate / 20), 400_000, 0.1, "compute", "test")

    def times(self, model: ModelFacts, pool: Pool, shape: Shape) -> StepTimes | Refusal:
        return StepTimes(0.01, 1e-4, 0.0, 0.02, 1e-4, 1e-7, "test")


def table(shapes: tuple[Shape, ...] = (ONE,), **rates: tuple[float | None, float | None]) -> TablePerformance:
    """table(h100=(prefill tokens/s, decode tokens/s)); None: cannot serve that phase."""
    entries = []
    for name, pair in rates.items():
        for phase, rate in zip((Phase.PREFILL, Phase.DECODE), pair, strict=True):
            if rate is not None:
                entries.append(((name.replace("_", "-"), phase), rate))
    return TablePerformance(tuple(entries), shapes)


def service(name: str = "chat", **changes: Any) -> ServiceInput:
    given = ServiceInput(ServiceKey("prod", name), MODEL, TARGETS, {phase: PhasePolicy() for phase in Phase})
    return replace(given, **changes)


def observation(
    key: ServiceKey,
    rate: float = 10.0,
    prompt: float = 1000.0,
    output: float = 200.0,
    at: float = 1000.0,
    window: float = 30.0,
    prefill: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ServiceObservation:
    """Steady traffic, everything served, both targets met; single signals may be changed."""
    n = rate * window
    if rate > 0:
        first = PhaseObservation(
            requests_per_second=Known(rate, n),
            served_requests_per_second=Known(rate, n),
            tokens_per_second=Known(rate * prompt, n),
            mean_tokens=Known(prompt, n),
            prefix_hit_share=Known(0.0),
            attainment=Known(0.99, n),
            waiting_requests=Known(0.0),
            waiting_for_capacity_requests=Known(0.0),
        )
        second = replace(first, tokens_per_second=Known(rate * output, n), mean_tokens=Known(output, n))
    else:
        first = second = PhaseObservation(
            requests_per_second=Idle(), served_requests_per_second=Idle(), tokens_per_second=Idle(), mean_tokens=Idle()
        )
    return ServiceObservation(
        key,
        at,
        window,
        replace(first, **(prefill or {})),
        replace(second, **(decode or {})),
        **changes,
    )


@dataclass
class Setting:
    """One service in one round: its replicas (ready unless said otherwise), its traffic, its pools."""

    pools: tuple[Pool, ...] = field(default_factory=lambda: (pool("h100"),))
    performance: TablePerformance = field(default_factory=lambda: table(h100=(10_000.0, 1_000.0)))
    ready: Mapping[tuple[Phase, str], int] = field(default_factory=dict)
    shapes: Mapping[tuple[Phase, str], Shape] = field(default_factory=dict)
    status: Mapping[tuple[Phase, str], Mapping[str, float]] = field(default_factory=dict)
    service: ServiceInput = field(default_factory=service)
    seen: ServiceObservation | None = None
    memory: ServiceMemory = field(default_factory=ServiceMemory)
    now: float = 1000.0
    interval: float = 15.0
    others: Mapping[str, tuple[ServiceInput, ServiceObservation | None, Mapping[tuple[Phase, str], int]]] = field(
        default_factory=dict
    )

    def variant(self, phase: Phase, pool_name: str = "h100", name: str | None = None) -> Variant:
        key = self.service.key if name is None else ServiceKey("prod", name)
        return Variant(key, phase, pool_name, self.shapes.get((phase, pool_name), ONE))

    def decide(self) -> Decision:
        return self.decide_all()[self.service.key]

    def decide_all(self) -> dict[ServiceKey, Decision]:
        statuses: dict[ServiceKey, list[VariantStatus]] = {self.service.key: []}
        for (phase, name), count in self.ready.items():
            entry = {"desired": count, "ready": count, "startup_seconds": 60.0, **self.status.get((phase, name), {})}
            statuses[self.service.key].append(VariantStatus(self.variant(phase, name), **entry))  # type: ignore[arg-type]
        services = [self.service]
        observations = {} if self.seen is None else {self.service.key: self.seen}
        for name, (given, seen, ready) in self.others.items():
            key = ServiceKey("prod", name)
            services.append(given)
            statuses[key] = [
                VariantStatus(self.variant(phase, where, name), n, n, startup_seconds=60.0) for (phase, where), n in ready.items()
            ]
            if seen is not None:
                observations[key] = seen
        every = [status for entries in statuses.values() for status in entries]
        inputs = DecideInput(
            tuple(replace(entry, variants=tuple(statuses[entry.key])) for entry in services),
            observations,
            {self.service.key: self.memory},
            self.now,
            self.interval,
        )
        return decide(Fleet(tuple(_occupied(entry, every) for entry in self.pools)), inputs, self.performance)


def _occupied(entry: Pool, statuses: list[VariantStatus]) -> Pool:
    nodes = list(entry.nodes)
    for status in statuses:
        for _ in range((status.ready + status.starting + status.draining) if status.variant.pool == entry.name else 0):
            width = status.variant.shape.gpus_per_replica
            index = next(i for i, node in enumerate(nodes) if node.free_gpus >= width)
            own = dict(nodes[index].own_gpus)
            own[status.variant] = own.get(status.variant, 0) + width
            nodes[index] = replace(nodes[index], own_gpus=own)
    return replace(entry, nodes=tuple(nodes))


def names(decision: Decision) -> set[str]:
    return {reason.name for reason in decision.reasons}


def message(decision: Decision, name: str) -> str:
    return next(reason.message for reason in decision.reasons if reason.name == name)


@dataclass
class _Pod:
    variant: Variant
    node: str
    ready_at: float
    gone_at: float | None = None


@dataclass
class Answers:
    count: float
    left: float
    length: float


@dataclass
class _Flow:
    """Work of one service: a queue of prompts, and answers in progress as cohorts of equal age."""

    waiting: float = 0.0
    waiting_tokens: float = 0.0
    answers: list[Answers] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)


SPREAD = (0.2, 0.45, 0.75, 1.2, 2.4)  # answer lengths over their mean, fifths of a lognormal with a variation of about 1

PEAK = 1.15  # what a replica can do at most, over what it sustains inside the targets

Traffic = Callable[[float], tuple[float, float, float]]  # time -> requests/s, prompt tokens, output tokens


class World:
    """Pools, pods and traffic, one second a step. The controller's decisions are carried out as the operator would."""

    def __init__(
        self,
        pools: tuple[Pool, ...],
        performance: TablePerformance,
        services: Mapping[ServiceKey, ServiceInput],
        traffic: Mapping[ServiceKey, Traffic],
        *,
        start_up: float = 60.0,
        drain: float = 10.0,
        interval: float = 15.0,
        window: float = 15.0,
        noise_seed: int | None = None,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        self.pools, self.performance = pools, performance
        self.services, self.traffic = dict(services), dict(traffic)
        self.start_up, self.drain, self.interval, self.window = start_up, drain, interval, window
        self.random = random.Random(noise_seed) if noise_seed is not None else None
        self.settings = dict(settings or {})
        self.now = 1_000_000.0
        self.begin = self.now
        self.pods: list[_Pod] = []
        self.flows = {key: _Flow() for key in services}
        self.memories: dict[ServiceKey, ServiceMemory] = {}
        self.history: list[tuple[float, dict[ServiceKey, Decision]]] = []
        self.offered = dict.fromkeys(services, 0.0)
        self.good = dict.fromkeys(services, 0.0)
        self.observation_filter: Callable[[float, ServiceObservation], ServiceObservation] = lambda _, found: found

    # -- the cluster

    def fleet(self) -> Fleet:
        pools = []
        for entry in self.pools:
            nodes = []
            for node in entry.nodes:
                own: dict[Variant, int] = {}
                for pod in self.pods:
                    if pod.node == node.name:
                        own[pod.variant] = own.get(pod.variant, 0) + pod.variant.shape.gpus_per_replica
                nodes.append(replace(node, own_gpus=own))
            pools.append(replace(entry, nodes=tuple(nodes)))
        return Fleet(tuple(pools))

    def counts(self, key: ServiceKey) -> dict[Phase, int]:
        return {
            phase: sum(pod.variant.service == key and pod.variant.phase is phase and pod.gone_at is None for pod in self.pods)
            for phase in Phase
        }

    def statuses(self, key: ServiceKey) -> tuple[VariantStatus, ...]:
        found: dict[Variant, list[_Pod]] = {}
        for pod in self.pods:
            if pod.variant.service == key:
                found.setdefault(pod.variant, []).append(pod)
        return tuple(
            VariantStatus(
                variant,
                desired=sum(pod.gone_at is None for pod in pods),
                ready=sum(pod.gone_at is None and pod.ready_at <= self.now for pod in pods),
                starting=sum(pod.gone_at is None and pod.ready_at > self.now for pod in pods),
                draining=sum(pod.gone_at is not None for pod in pods),
                startup_seconds=self.start_up,
            )
            for variant, pods in sorted(found.items())
        )

    def apply(self, decision: Decision) -> None:
        for move in decision.moves:
            if move.kind is MoveKind.FLIP:
                donors = [
                    pod for pod in self.pods if pod.variant == move.donor and pod.gone_at is None and pod.ready_at <= self.now
                ]
                for pod in donors[: move.replicas]:
                    assert move.receiver is not None
                    pod.variant = move.receiver
        there: dict[Variant, list[_Pod]] = {}
        for pod in self.pods:
            if pod.variant.service == decision.service and pod.gone_at is None:
                there.setdefault(pod.variant, []).append(pod)
        for variant in sorted({*there, *decision.allocation}):
            pods = there.get(variant, [])
            wanted = decision.allocation.get(variant, 0)
            for pod in pods[wanted:]:
                pod.gone_at = self.now + self.drain
            for _ in range(wanted - len(pods)):
                node = next(
                    node.name
                    for entry in self.fleet().pools
                    if entry.name == variant.pool
                    for node in entry.nodes
                    if node.free_gpus >= variant.shape.gpus_per_replica
                )
                self.pods.append(_Pod(variant, node, self.now + self.start_up))

    # -- traffic

    def _capacity(self, key: ServiceKey, phase: Phase) -> float:
        rates = dict(self.performance.rates)
        devices = {entry.name: entry.device.name for entry in self.pools}
        return PEAK * sum(
            rates.get((devices[pod.variant.pool], phase), 0.0) * pod.variant.shape.gpus_per_replica
            for pod in self.pods
            if pod.variant.service == key and pod.variant.phase is phase and pod.ready_at <= self.now and pod.gone_at is None
        )

    def step(self) -> None:
        for key, flow in self.flows.items():
            rate, prompt, output = self.traffic[key](self.now - self.begin)
            arrivals = rate if self.random is None else _poisson(self.random, rate)
            mix = 1.0 if self.random is None else max(0.2, self.random.gauss(1.0, 0.7 / max(1.0, arrivals) ** 0.5))
            prefill, decode = self._capacity(key, Phase.PREFILL), self._capacity(key, Phase.DECODE)
            # Queues are bounded by the target: what could not be served within 0.9 s is refused.
            room = max(0.0, 0.9 * prefill - flow.waiting_tokens + prefill)
            taken = min(arrivals, room / (prompt * mix)) if prompt else 0.0
            flow.waiting += taken
            flow.waiting_tokens += taken * prompt * mix
            share = min(1.0, prefill / flow.waiting_tokens) if flow.waiting_tokens > 0 else 0.0
            passed, tokens = flow.waiting * share, flow.waiting_tokens * share
            flow.waiting -= passed
            flow.waiting_tokens -= tokens
            if passed:
                flow.answers += [Answers(passed / len(SPREAD), output * part, output * part) for part in SPREAD]
            running = sum(entry.count for entry in flow.answers)
            speed = min(40.0, decode / running) if running else 0.0
            written = ended = ended_tokens = 0.0
            for entry in flow.answers:
                step = min(speed, entry.left)
                written += entry.count * step
                entry.left -= step
                if entry.left <= 1e-9:
                    ended += entry.count
                    ended_tokens += entry.count * entry.length
            flow.answers = [entry for entry in flow.answers if entry.left > 1e-9]
            self.offered[key] += arrivals
            self.good[key] += taken if speed >= 20.0 or not running else 0.0
            flow.seconds.append(
                {
                    "arrivals": arrivals, "refused": arrivals - taken, "passed": passed, "tokens": tokens, "written": written,
                    "ended": ended, "ended_tokens": ended_tokens, "waiting": flow.waiting, "speed": speed, "running": running,
                }
            )  # fmt: skip
        self.now += 1.0
        self.pods = [pod for pod in self.pods if pod.gone_at is None or pod.gone_at > self.now]

    def observe(self, key: ServiceKey) -> ServiceObservation:
        recent = self.flows[key].seconds[-int(self.window) :]
        total = {name: sum(second[name] for second in recent) for name in (recent[0] if recent else {})}
        seconds = max(1, len(recent))
        if not recent or total["arrivals"] + total["passed"] + total["written"] <= 0:
            return observation(key, rate=0.0, at=self.now, window=self.window)
        good_speed = [second["speed"] for second in recent if second["running"]]
        prefill = PhaseObservation(
            requests_per_second=Known(total["arrivals"] / seconds, total["arrivals"]) if total["arrivals"] else Idle(),
            served_requests_per_second=Known(total["passed"] / seconds) if total["passed"] else Idle(),
            refused_requests_per_second=Known(total["refused"] / seconds),
            tokens_per_second=Known(total["tokens"] / seconds),
            mean_tokens=Known(total["tokens"] / total["passed"]) if total["passed"] else Idle(),
            prefix_hit_share=Known(0.0),
            attainment=Known(1.0 - total["refused"] / total["arrivals"]) if total["arrivals"] else Idle(),
            waiting_requests=Known(total["waiting"] / seconds),
        )
        decode = PhaseObservation(
            requests_per_second=Known(total["passed"] / seconds) if total["passed"] else Idle(),
            served_requests_per_second=Known(total["ended"] / seconds) if total["ended"] else Idle(),
            tokens_per_second=Known(total["written"] / seconds) if total["written"] else Idle(),
            mean_tokens=Known(total["ended_tokens"] / total["ended"]) if total["ended"] else Idle(),
            attainment=Known(sum(speed >= 20.0 for speed in good_speed) / len(good_speed)) if good_speed else Idle(),
            running_requests=Known(total["running"] / seconds),
            waiting_requests=Known(0.0),
            waiting_for_capacity_requests=Known(0.0),
        )
        return ServiceObservation(key, self.now, self.window, prefill, decode)

    # -- the loop

    def round(self) -> dict[ServiceKey, Decision]:
        observations = {key: self.observation_filter(self.now - self.begin, self.observe(key)) for key in self.services}
        inputs = DecideInput(
            tuple(replace(entry, variants=self.statuses(key)) for key, entry in self.services.items()),
            observations,
            self.memories,
            self.now,
            self.interval,
            self.settings,
        )
        decisions = decide(self.fleet(), inputs, self.performance)
        for key, decision in decisions.items():
            self.memories[key] = ServiceMemory.from_dict(decision.memory.to_dict())
            self.apply(decision)
        self.history.append((self.now - self.begin, decisions))
        return decisions

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            if (self.now - self.begin) % self.interval == 0:
                self.round()
            self.step()

    def place(self, key: ServiceKey, phase: Phase, pool_name: str, count: int) -> None:
        """Ready replicas from the start."""
        for _ in range(count):
            node = next(n.name for p in self.fleet().pools if p.name == pool_name for n in p.nodes if n.free_gpus >= 1)
            self.pods.append(_Pod(Variant(key, phase, pool_name, ONE), node, self.now))

    def moves(self, key: ServiceKey, after: float = 0.0) -> int:
        return sum(move.replicas for at, decisions in self.history if at >= after for move in decisions[key].moves)

    def goodput(self, key: ServiceKey) -> float:
        return self.good[key] / max(1.0, self.offered[key])


def _poisson(source: random.Random, mean: float) -> float:
    return float(max(0, round(source.gauss(mean, mean**0.5)))) if mean > 0 else 0.0
