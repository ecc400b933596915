"""One service's pods and what carries a decision out on them: flips, starts, drains. Level-triggered, like the operator's.

It follows the operator's moves and the controllers behind them: an allocation is a count per variant; surplus running pods of the
other phase of the same place are adopted first (a flip), pods that do not serve are given up at once, pods that serve are
drained, drained pods are deleted, missing pods are created, and pods bind where GPUs are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log, sqrt
from random import Random
from statistics import median

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.donors import PodView, choose_pods
from equipoise.decide.types import VariantStatus
from equipoise.observe.scope import PodScope
from equipoise.render.names import deployment_name
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.types import ReplicaSpec
from equipoise.simulate.loop.hardware import Hardware, Node
from equipoise.simulate.loop.setup import EPOCH_SECONDS, World

_STARTUPS_REMEMBERED = 9  # as the operator does: the median over the latest starts


@dataclass(slots=True, eq=False)
class Pod:
    """One engine pod, in virtual seconds."""

    name: str
    variant: Variant
    created: float
    node: Node | None = None
    bound_at: float = 0.0
    ready_at: float = 0.0
    phase_since: float = 0.0
    draining_since: float | None = None
    next_scrape: float = 0.0

    def is_ready(self, now: float) -> bool:
        """Whether its engine has loaded."""
        return self.node is not None and self.ready_at <= now

    def serves(self, now: float) -> bool:
        """Ready and in routing."""
        return self.is_ready(now) and self.draining_since is None


@dataclass(slots=True)
class MoveCounts:
    """Replicas that changed phase, started because a decision asked for more, and left because it asked for less."""

    flips: int = 0
    starts: int = 0
    stops: int = 0

    @property
    def total(self) -> int:
        """All of them: a handover counts as a stop and a start."""
        return self.flips + self.starts + self.stops


class Pods:
    """`specs(variant, node)` says what an engine of that variant is; `on_left(pod, phase)` hears of every series that ends."""

    def __init__(
        self,
        key: ServiceKey,
        cluster: Cluster,
        hardware: Hardware,
        world: World,
        specs: Callable[[Variant, str], ReplicaSpec],
        on_left: Callable[[str, Phase], None],
        seed: int,
    ) -> None:
        self.key = key
        self.cluster = cluster
        self.pods: dict[str, Pod] = {}
        self.allocation: dict[Variant, int] = {}
        self.moves = MoveCounts()
        self._hardware, self._world, self._specs, self._on_left = hardware, world, specs, on_left
        self._random = Random(f"{seed}/startup/{key}")
        self._startups: dict[Variant, list[float]] = {}
        self._number = 0
        self.freed: Callable[[float], None] = self.bind_pending  # a GPU became free: with several services, all of them look
        cluster.on_retired = self._retired

    def begin(self, allocation: Mapping[Variant, int]) -> None:
        """Replicas that have served for long when the traffic begins."""
        self.allocation = dict(allocation)
        for variant, count in allocation.items():
            for _ in range(count):
                pod = self._create(variant, -3600.0)
                node = self._hardware.bind(variant, 0.0)
                if node is None:
                    raise ValueError(f"{self.key}: pool {variant.pool} has no GPU free for the first replicas of {variant}")
                pod.node, pod.bound_at, pod.ready_at = node, -3600.0, -3600.0
                self.cluster.add(pod.name, self._specs(variant, node.name), variant.phase, 0.0)

    def apply(self, allocation: Mapping[Variant, int], now: float) -> None:
        """Carry an allocation out. The cluster has been brought to `now`."""
        self.allocation = {variant: count for variant, count in allocation.items() if count > 0}
        for variant in sorted({*self.allocation, *(pod.variant for pod in self.pods.values())}):
            if self._world.flips:
                self._flip_into(variant, now)
        for variant in sorted({*self.allocation, *(pod.variant for pod in self.pods.values())}):
            self._settle(variant, now)
        self.bind_pending(now)

    def _of(self, variant: Variant) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.variant == variant]

    def _flip_into(self, receiver: Variant, now: float) -> None:
        donor = receiver.with_phase(receiver.phase.other)
        lacking = self.allocation.get(receiver, 0) - sum(pod.node is not None for pod in self._of(receiver))
        able = [pod for pod in self._of(donor) if pod.serves(now)]
        count = min(lacking, len(able) - self.allocation.get(donor, 0))
        for pod in self._chosen(able, count, now):
            self._on_left(pod.name, donor.phase)
            if pod.node is not None:
                self._hardware.rename(pod.node, donor, receiver)
            pod.variant, pod.phase_since = receiver, now
            self.cluster.flip(pod.name, receiver.phase, now, self._world.flip_seconds)
            self.moves.flips += 1

    def _chosen(self, pods: Iterable[Pod], count: int, now: float) -> list[Pod]:
        found = {pod.name: pod for pod in pods}
        views = [
            PodView(
                pod.name,
                pod.is_ready(now),
                pod.node is not None,
                pod.draining_since is not None,
                pod.created,
                None,
                pod.node.name if pod.node is not None else "",
            )
            for pod in found.values()
        ]
        return [found[view.name] for view in choose_pods(views, count)]

    def _settle(self, variant: Variant, now: float) -> None:
        pods = self._of(variant)
        staying = [pod for pod in pods if pod.draining_since is None]
        difference = self.allocation.get(variant, 0) - len(staying)
        if difference < 0:
            for pod in self._chosen(staying, -difference, now):
                self._let_go(pod, now)
                self.moves.stops += 1
            return
        draining = sorted((pod for pod in pods if pod.draining_since is not None), key=lambda pod: -(pod.draining_since or 0.0))
        for pod in draining[:difference]:
            self._take_back(pod)
            difference -= 1
        for _ in range(difference):
            self._create(variant, now)
            self.moves.starts += 1

    def _let_go(self, pod: Pod, now: float) -> None:
        self._on_left(pod.name, pod.variant.phase)
        if pod.serves(now):
            pod.draining_since = now
            self.cluster.drain(pod.name, now, self._world.drain_grace_seconds)
        elif pod.node is None:
            del self.pods[pod.name]
        else:
            self.cluster.remove(pod.name, now, "deleted while it started")

    def _take_back(self, pod: Pod) -> None:
        pod.draining_since = None
        self.cluster.undrain(pod.name, pod.variant.phase)
        self.moves.stops -= 1

    def _create(self, variant: Variant, now: float) -> Pod:
        self._number += 1
        pod = Pod(f"{self.key.name}-{self._number}", variant, now, phase_since=now)
        self.pods[pod.name] = pod
        return pod

    def bind_pending(self, now: float) -> None:
        """Give pods without a node the GPUs that are free, the oldest first."""
        for pod in [pod for pod in self.pods.values() if pod.node is None]:
            node = self._hardware.bind(pod.variant, now)
            if node is None:
                continue
            startup = self._sampled_startup(pod.variant)
            pod.node, pod.bound_at = node, now
            pod.ready_at = pod.phase_since = now + startup
            self._startups.setdefault(pod.variant, []).append(startup)
            self.cluster.add(pod.name, self._specs(pod.variant, node.name), pod.variant.phase, now, startup)

    def _sampled_startup(self, variant: Variant) -> float:
        """Lognormal around the pool's mean; the scheduler's second on top."""
        own = self._hardware.pools[variant.pool].startup_seconds
        mean = self._world.startup_seconds if own is None else own
        sigma = sqrt(log(1.0 + self._world.startup_variation**2))
        return self._world.schedule_seconds + mean * self._random.lognormvariate(-sigma * sigma / 2.0, sigma)

    def _retired(self, replica: Replica, now: float) -> None:
        pod = self.pods.pop(replica.name)
        if pod.node is not None:
            self._hardware.release(pod.node, pod.variant, now)
        for phase in Phase:
            self._on_left(pod.name, phase)
        self.freed(now)

    def lose(self, pod: Pod, now: float) -> None:
        """The pod dies; its Deployment makes a new one."""
        draining, variant = pod.draining_since is not None, pod.variant
        if pod.node is None:
            return
        self.cluster.remove(pod.name, now)
        if not draining:
            self._create(variant, now)
            self.bind_pending(now)

    def statuses(self, now: float) -> tuple[VariantStatus, ...]:
        """What the operator would see of each variant."""
        found = []
        for variant in sorted({*self.allocation, *(pod.variant for pod in self.pods.values())}):
            pods = self._of(variant)
            staying = [pod for pod in pods if pod.draining_since is None]
            pending = [pod for pod in staying if pod.node is None]
            found.append(
                VariantStatus(
                    variant=variant,
                    desired=self.allocation.get(variant, 0),
                    ready=sum(pod.is_ready(now) for pod in staying),
                    starting=sum(pod.node is not None and not pod.is_ready(now) for pod in staying),
                    pending=len(pending),
                    draining=len(pods) - len(staying),
                    oldest_pending_seconds=max((now - pod.created for pod in pending), default=0.0),
                    startup_seconds=self._learned_startup(pods, now),
                    name=deployment_name(variant),
                )
            )
        return tuple(found)

    def _learned_startup(self, pods: Iterable[Pod], now: float) -> float | None:
        """From the pods there are, as the operator does: scheduled to Ready. The first ones took what the world's starts take."""
        ready = sorted((pod for pod in pods if pod.is_ready(now)), key=lambda pod: pod.created)[-_STARTUPS_REMEMBERED:]
        if not ready:
            return None
        first = self._world.startup_seconds + self._world.schedule_seconds
        return float(median(pod.ready_at - pod.bound_at if pod.created > -3600.0 else first for pod in ready))

    def scopes(self, now: float) -> dict[Phase, tuple[PodScope, ...]]:
        """The pods of each phase as `observe` wants them: draining ones belong to none."""
        result: dict[Phase, list[PodScope]] = {phase: [] for phase in Phase}
        for pod in self.pods.values():
            if pod.draining_since is None:
                since = max(pod.ready_at, pod.phase_since) + EPOCH_SECONDS if pod.is_ready(now) else None
                result[pod.variant.phase].append(PodScope(pod.name, since, deployment_name(pod.variant)))
        return {phase: tuple(pods) for phase, pods in result.items()}
