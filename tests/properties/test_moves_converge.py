"""Whatever happens between two writes, moves converge, and no pod that serves is deleted.

The model below stands for the real controllers: a ReplicaSet per variant that creates and deletes pods by Kubernetes' own
ranking, and a scheduler with a fixed number of GPUs. ReplicaSets hear of counts and of a pass's changes of pods late, at random:
two watches may overtake each other. The operator is interrupted at random points and plans afresh.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.reconcile.moves.plan import MoveInput, plan_moves
from equipoise.reconcile.view.pods import DRAINING_COST, RELEASED_COST, EnginePod

SERVICE = ServiceKey("prod", "chat")
PREFILL = Variant(SERVICE, Phase.PREFILL, "h100-80gb", Shape())
DECODE = Variant(SERVICE, Phase.DECODE, "h100-80gb", Shape())
OTHER = Variant(SERVICE, Phase.DECODE, "l40s-48gb", Shape())


@dataclass
class World:
    """Deployments, pods and GPUs of one service."""

    gpus: dict[str, int]
    counts: dict[Variant, int] = field(default_factory=dict)
    known: dict[Variant, int] = field(default_factory=dict)  # counts as the ReplicaSets last heard of them
    pods: dict[str, EnginePod] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)
    cache: dict[str, tuple[EnginePod, int]] = field(default_factory=dict)  # pods and costs as the ReplicaSets last heard of them
    owner: dict[str, Variant] = field(default_factory=dict)
    now: float = 1000.0
    serial: int = 0
    lost_while_serving: list[str] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)

    def controllers(self) -> None:
        """ReplicaSets and the scheduler, until nothing is left to do for them."""
        for variant in sorted({*self.counts, *(pod.variant for pod in self.pods.values())}):
            mine = [(pod, cost) for name, (pod, cost) in self.cache.items() if pod.variant == variant and name in self.pods]
            for pod, _ in mine:
                self.owner[pod.name] = variant  # adopts, and by that lets go
            want = self.known.get(variant, 0)
            for _ in range(want - len(mine)):
                self.serial += 1
                name = f"pod-{self.serial}"
                self.pods[name] = _pod(name, variant, self.now + self.serial / 1000)
                self.owner[name] = variant
                self.hear(name)
            ranked = sorted(mine, key=lambda item: (item[0].bound, item[0].ready, item[1], -item[0].created_seconds))
            for pod, _ in ranked[: max(0, len(mine) - want)]:
                if self.pods[pod.name].serving:
                    self.lost_while_serving.append(pod.name)
                del self.pods[pod.name]
        for pod in sorted(self.pods.values(), key=lambda pod: pod.created_seconds):
            if not pod.bound and self.used(pod.variant.pool) < self.gpus[pod.variant.pool]:
                self.pods[pod.name] = replace(pod, bound=True, node="node")
        for pool in self.gpus:
            self.peak[pool] = max(self.peak.get(pool, 0), self.used(pool))

    def hear(self, name: str) -> None:
        """What happened to a pod reaches the ReplicaSets."""
        self.cache[name] = (self.pods[name], self.cost.get(name, 0))

    def unreleased(self) -> dict[Variant, int]:
        return Counter(self.owner[name] for name, pod in self.pods.items() if self.owner[name] != pod.variant)

    def used(self, pool: str) -> int:
        return sum(pod.bound for pod in self.pods.values() if pod.variant.pool == pool)

    def start_pods(self) -> None:
        """Bound pods become Ready."""
        for pod in list(self.pods.values()):
            if pod.bound and not pod.ready:
                self.pods[pod.name] = replace(pod, ready=True, ready_since_seconds=self.now)

    def operator(self, allocation: dict[Variant, int], stop_after: int, flips: bool = True) -> bool:
        """One pass of the operator that dies after `stop_after` writes; True when nothing is left to do or to wait for."""
        for name in self.pods:
            self.hear(name)  # what an earlier pass wrote has arrived; what this one writes may be late
        idle = frozenset(pod.name for pod in self.pods.values() if pod.draining)  # requests end at once in this model
        given = MoveInput(allocation, dict(self.counts), list(self.pods.values()), flips, self.now, 60.0, idle, self.unreleased())
        plan = plan_moves(given)
        writes = 0

        def alive() -> bool:
            nonlocal writes
            writes += 1
            return writes <= stop_after

        for variant, count in plan.first_counts.items():
            if self.counts.get(variant, 0) != count:
                if not alive():
                    return False
                self.counts[variant] = count
                self.maybe_controllers()
        # What `moves.heard.has_room` asks of the API server.
        if any(self.known.get(item.receiver, 0) != self.counts[item.receiver] for item in plan.adoptions):
            return False
        for adoption in plan.adoptions:
            if not alive():
                return False
            self.pods[adoption.pod.name] = replace(adoption.pod, variant=adoption.receiver)
            self.maybe_controllers()
        for pod in (*plan.undrains, *plan.drains):
            if not alive():
                return False
            self.pods[pod.name] = replace(pod, draining=not pod.draining, released=False, draining_since_seconds=self.now)
            self.cost[pod.name] = 0 if pod.draining else DRAINING_COST
        for pod in plan.releases:
            if pod.name not in self.pods:
                continue
            if not alive():
                return False
            self.pods[pod.name] = replace(self.pods[pod.name], released=True)
            self.cost[pod.name] = RELEASED_COST
        for variant, count in plan.final_counts.items():
            if self.counts.get(variant, 0) != count:
                if not alive():
                    return False
                self.counts[variant] = count
                self.maybe_controllers()
        return writes == 0 and not given.unreleased

    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def maybe_controllers(self) -> None:
        """The controllers may be quick or slow, and know of some pods' changes or not."""
        for name in sorted(self.pods):
            if self.chance.random() < 0.5:
                self.hear(name)
        for variant in sorted(self.counts):
            if self.chance.random() < 0.5:
                self.known[variant] = self.counts[variant]
        if self.chance.random() < 0.7:
            self.controllers()

    def calm(self) -> None:
        """Everything is heard of, and everybody acts."""
        for name in sorted(self.pods):
            self.hear(name)
        self.known.update(self.counts)
        self.controllers()


def _pod(name: str, variant: Variant, created: float) -> EnginePod:
    return EnginePod(
        "prod", name, f"uid-{name}", "d", variant, "r1", False, False, False, False, "", "", created, None, None, None
    )


counts = st.integers(0, 5)


@given(
    before=st.tuples(counts, counts, counts),
    after=st.tuples(counts, counts, counts),
    stops=st.lists(st.integers(0, 6), max_size=6),
    seed=st.integers(0, 10_000),
    flips=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_moves_converge_and_lose_no_serving_pod(
    before: tuple[int, int, int], after: tuple[int, int, int], stops: list[int], seed: int, flips: bool
) -> None:
    """From any split to any other that the GPUs hold, interrupted anywhere: the allocation, and nothing serving deleted."""
    start = dict(zip((PREFILL, DECODE, OTHER), before, strict=True))
    wanted = dict(zip((PREFILL, DECODE, OTHER), after, strict=True))
    gpus = {"h100-80gb": max(sum(before[:2]), sum(after[:2])), "l40s-48gb": max(before[2], after[2])}
    world = World(gpus=gpus, counts=dict(start), chance=random.Random(seed))
    world.calm()
    world.start_pods()
    for stop in stops:
        world.operator(wanted, stop, flips)
        world.maybe_controllers()
        world.now += 1
    for _ in range(12):
        quiet = world.operator(wanted, 100, flips)
        world.calm()
        world.start_pods()
        world.now += 1
        if quiet:
            break
    assert quiet, "still writing after twelve passes"
    assert {variant: count for variant, count in world.counts.items() if count} == {v: c for v, c in wanted.items() if c}
    serving = {variant: sum(pod.serving for pod in world.pods.values() if pod.variant == variant) for variant in wanted}
    assert serving == wanted
    assert world.lost_while_serving == []


@given(seed=st.integers(0, 10_000), splits=st.lists(st.integers(1, 3), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_flips_to_and_fro_keep_the_pods_that_serve(seed: int, splits: list[int]) -> None:
    """Two GPUs more than pods, so that placeholders come and go; the next flip does not wait for the one before to settle."""
    world = World(gpus={"h100-80gb": 6}, counts={PREFILL: 1, DECODE: 3}, chance=random.Random(seed))
    world.calm()
    world.start_pods()
    names = set(world.pods)
    for prefill in splits:
        for _ in range(3):
            world.operator({PREFILL: prefill, DECODE: 4 - prefill}, 100)
            world.maybe_controllers()
    assert names <= set(world.pods)
    assert world.lost_while_serving == []


def test_a_flip_keeps_the_same_pods() -> None:
    """Three decode, one prefill, to two and two on a full pool: the pods are the same four."""
    world = World(gpus={"h100-80gb": 4}, counts={PREFILL: 1, DECODE: 3})
    world.calm()
    world.start_pods()
    names = set(world.pods)
    for _ in range(2):
        world.operator({PREFILL: 2, DECODE: 2}, 100)
        world.calm()
    assert set(world.pods) == names
    assert sum(pod.variant == PREFILL for pod in world.pods.values()) == 2
    assert all(pod.ready for pod in world.pods.values())


def test_without_flips_the_donor_drains_first_and_the_receiver_waits_for_the_gpu() -> None:
    """No flip: the donor's pod leaves routing, then goes, and only then can the receiver's pod be bound."""
    world = World(gpus={"h100-80gb": 4}, counts={PREFILL: 1, DECODE: 3})
    world.calm()
    world.start_pods()
    before = {pod.name for pod in world.pods.values() if pod.variant == DECODE}
    world.operator({PREFILL: 1, DECODE: 2}, 100, flips=False)
    assert sum(pod.draining for pod in world.pods.values()) == 1
    for _ in range(2):  # marked first, let go in the pass after
        world.operator({PREFILL: 1, DECODE: 2}, 100, flips=False)
    world.calm()
    assert len({pod.name for pod in world.pods.values() if pod.variant == DECODE} & before) == 2


def test_a_drain_is_called_off_when_the_load_returns() -> None:
    """The pod that was leaving serves again, and no new one is started."""
    world = World(gpus={"h100-80gb": 4}, counts={PREFILL: 1, DECODE: 3})
    world.calm()
    world.start_pods()
    names = set(world.pods)
    world.operator({PREFILL: 1, DECODE: 2}, 100)
    world.operator({PREFILL: 1, DECODE: 3}, 100)
    world.calm()
    assert set(world.pods) == names
    assert not any(pod.draining for pod in world.pods.values())
